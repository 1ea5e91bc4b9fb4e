#!/usr/bin/env bash
# tools/completions equals the output of the current programs; bash completes commands, options, values and files with it; zsh can read it.
. "$DRT_SOURCE/tests/cli/lib.sh"
sanitized && skip "the texts are those of the release build, and other tests print them with sanitizers"
needs drt-index drt-generate drt-train drt-model drt-eval drt-tokenizer
expect 0 bash "$SOURCE/tools/docs/completions.sh" "$BIN" "$TMP/made"
for file in drt.bash _drt; do
    diff -u "$SOURCE/tools/completions/$file" "$TMP/made/$file" >"$OUT" || die "tools/completions/$file is not what the programs have: cmake --build build --target docs"
done
expect 2 bash "$SOURCE/tools/docs/completions.sh"
mkdir "$TMP/empty"
expect 1 bash "$SOURCE/tools/docs/completions.sh" "$TMP/empty" "$TMP/none"

. "$SOURCE/tools/completions/drt.bash"
mkdir "$TMP/here" "$TMP/here/a-store"
: >"$TMP/here/a-file.jsonl"
cd "$TMP/here" || exit 1
# given WORDS... (the last one is incomplete): the completions of bash, sorted, on one line.
given() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _drt "$1"
    printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' ' | sed 's/ $//'
}
same "$(given drt-index se)" search "a command"
same "$(given /usr/bin/drt-index re)" "recall repair" "commands of a program by its path"
same "$(given drt-index search --que)" "--queries --queries-format" "options of a command"
same "$(given drt-index stats --que)" "" "options of another command"
same "$(given drt-generate --prompt)" "--prompt --prompt-file" "options of a program"
case " $(given drt-generate -) " in *" -n -p "*) ;; *) die "the letters are missing: $(given drt-generate -)" ;; esac
case " $(given drt-index search --) " in *" --version "*) ;; *) die "--version is missing" ;; esac
same "$(given drt-generate --device "")" "auto cpu cuda" "words of an option"
same "$(given drt-generate --device = cu)" cuda "words after ="
same "$(given drt-index search --queries-format j)" jsonl "words of a command's option"
same "$(given drt-index stats --store "")" a-store "folders"
same "$(given drt-generate -f a)" "a-file.jsonl a-store" "files, by a letter"
same "$(given drt-generate -n "")" "" "a number has no completion"
same "$(given drt-index build a)" "a-file.jsonl a-store" "operands"
# Every option of every help text is offered.
for command in build search get; do
    for option in $("$BIN/drt-index" $command --help | grep -oE '^  (-[a-zA-Z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+'); do
        case " $(given drt-index $command "$option") " in *" $option "*) ;; *) die "drt-index $command: $option is not offered" ;; esac
    done
done
case $(complete -p drt-index drt-train) in *"-F _drt drt-index"*"-F _drt drt-train"*) ;; *) die "nothing is registered" ;; esac
command -v zsh >/dev/null || skip "zsh is missing: _drt was not read by it"
expect 0 zsh -n "$SOURCE/tools/completions/_drt"
expect 0 zsh -f -c 'fpath=("$1" $fpath); autoload -U compinit && compinit -u -d "$2/dump" && print -r -- $_comps[drt-index]' zsh "$SOURCE/tools/completions" "$TMP"
same "$(cat "$OUT")" _drt "zsh's function for drt-index"
