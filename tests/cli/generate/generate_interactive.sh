#!/usr/bin/env bash
# drt-generate --interactive: in a pipe, and on a pseudo terminal with Ctrl-C and Ctrl-D.
. "$DRT_SOURCE/tests/cli/lib_index.sh"
needs drt-generate
GENERATE=$BIN/drt-generate
make_model "$TMP/model"
talk() { expect_in 0 "$TMP/lines" "$GENERATE" --model "$TMP/model" --interactive --greedy "$@"; }

# An empty line continues the answer as if it had not been stopped; the answer is that of --prompt; /reset forgets it.
expect 0 "$GENERATE" --model "$TMP/model" -p "the river" -n 20 --greedy
cp "$OUT" "$TMP/whole"
expect 0 "$GENERATE" --model "$TMP/model" -p "the river" -n 10 --greedy
cp "$OUT" "$TMP/half"
printf 'the river\n' >"$TMP/lines"
talk -n 10
cmp -s "$OUT" "$TMP/half" || die "another answer than --prompt gives"
printf 'the river\n\n' >"$TMP/lines"
talk -n 10
same "$(tr -d '\n' <"$OUT")" "$(tr -d '\n' <"$TMP/whole")" "an empty line"
printf 'the river\nstone\n/reset\nthe river' >"$TMP/lines"
talk -n 10
cmp -s <(tail -c "$(stat -c %s "$TMP/half")" "$OUT") "$TMP/half" || die "/reset leaves something of the text"
cmp -s <(head -c "$(stat -c %s "$TMP/half")" "$OUT") "$TMP/half" || die "the first answer"
# The second line reads the first: without it the answer differs.
printf 'the river and the stone are winding north\nstone\n' >"$TMP/lines"
talk -n 10 && cp "$OUT" "$TMP/two"
printf 'stone\n' >"$TMP/lines"
talk -n 10
! cmp -s <(tail -c 20 "$OUT") <(tail -c 20 "$TMP/two") || die "the first line left nothing"
# The prompt of the command line comes first; an unknown command is an error that names it.
printf '/nonsense\n' >"$TMP/lines"
talk -n 10 -p "the river"
cmp -s "$OUT" "$TMP/half" || die "--prompt before the lines"
err_has "there is no command /nonsense"
err_has "/reset"
: >"$TMP/lines"
talk -n 10
[ ! -s "$OUT" ] || die "no lines, and yet an answer"
expect_usage "leave out -" "$GENERATE" --interactive -
expect_usage "leave out --interactive" "$GENERATE" --interactive --stats

# On a terminal Ctrl-C stops an endless answer, and the program continues; Ctrl-C at the prompt does nothing; Ctrl-D ends the program.
command -v python3 >/dev/null || skip "python3 is missing: the terminal was not tested"
python3 - "$GENERATE" "$TMP/model" <<'P' || die "on a terminal"
import os, pty, select, signal, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "--model", sys.argv[2], "-i", "--greedy", "--ignore-eos", "-n", "1000000000", "--threads", "1"])
seen = b""
def until(text, limit=60):
    global seen
    end = time.monotonic() + limit
    while text not in seen:
        ready, _, _ = select.select([fd], [], [], max(0, end - time.monotonic()))
        if not ready: sys.exit(f"{text!r} did not come; the last was {seen[-300:]!r}")
        seen += os.read(fd, 65536)
    seen = seen[seen.index(text) + len(text):]
try:
    until(b"\n> ")
    os.write(fd, b"half a line\x03")
    until(b"(Ctrl-D ends)\r\n> ")
    os.write(fd, b"the river\n")
    until(b"the river\r\n")
    while len(seen) < 200: seen += os.read(fd, 65536)
    os.write(fd, b"\x03")
    until(b"\r\n> ")
    os.write(fd, b"/reset\n/help\n")
    until(b"Ctrl-D ends.")
    until(b"> ")
    os.write(fd, b"\x04")
    deadline = time.monotonic() + 60
    while True:
        try:
            if not os.read(fd, 65536): break
        except OSError: break
        assert time.monotonic() < deadline
    _, how = os.waitpid(pid, 0)
    assert os.WIFEXITED(how) and os.WEXITSTATUS(how) == 0, how
except BaseException:
    try: os.kill(pid, signal.SIGKILL)
    except ProcessLookupError: pass
    raise
P
