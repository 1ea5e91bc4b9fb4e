#!/usr/bin/env bash
# docs/examples/kubernetes without a cluster: the files are YAML with the fields of an indexed Job. The command lines of their containers,
# run here for every index, make the same store as one build. One index is killed and run again.
. "${DRT_SOURCE:?root of the sources}/tests/cli/lib_index.sh" || exit 1
needs drt-index-fault
python3 -c 'import yaml' 2>/dev/null || skip "python3-yaml is not installed"
mkdir "$TMP/data" "$TMP/data/corpus"
make_model "$TMP/model"
cp -r "$TMP/model" "$TMP/data/model"
make_corpus "$TMP/data/corpus/a.jsonl" 90 1
make_corpus "$TMP/data/corpus/b.jsonl" 90 2

# Of each file: command-NAME (with /data as this folder), env-NAME, and the number of parts.
python3 - "$SOURCE/docs/examples/kubernetes" "$TMP" >"$TMP/parts" <<'PY' || die "the files of docs/examples/kubernetes"
import sys, yaml
folder, tmp = sys.argv[1:]
jobs = {}
for name in ("build", "join"):
    with open(f"{folder}/{name}.yaml") as f:
        documents = list(yaml.safe_load_all(f))
    assert len(documents) == 1, name
    job = jobs[name] = documents[0]
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job"), name
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never" and len(pod["containers"]) == 1, name
    container = pod["containers"][0]
    volumes = {v["name"] for v in pod["volumes"]}
    assert [m["mountPath"] for m in container["volumeMounts"]] == ["/data"], name
    assert all(m["name"] in volumes for m in container["volumeMounts"]), name
    assert all(isinstance(e["value"], str) for e in container["env"]), name
    shell, option, line = container["command"]
    assert (shell, option) == ("/bin/sh", "-c"), name
    assert line.count("/data/") >= 2 and "\n" not in line, name
    with open(f"{tmp}/command-{name}", "w") as f:
        f.write(line.replace("/data/", f"{tmp}/data/"))
    with open(f"{tmp}/env-{name}", "w") as f:
        f.writelines(f'{e["name"]}={e["value"]}\n' for e in container["env"])
spec = jobs["build"]["spec"]
assert spec["completionMode"] == "Indexed" and spec["backoffLimitPerIndex"] > 0
assert 0 < spec["parallelism"] <= spec["completions"]
assert jobs["build"]["metadata"]["name"] != jobs["join"]["metadata"]["name"]
for name in jobs:
    assert f'PARTS={spec["completions"]}\n' in open(f"{tmp}/env-{name}"), name
print(spec["completions"])
PY
parts=$(cat "$TMP/parts")
mkdir "$TMP/fault"
ln -s "$BIN/drt-index-fault" "$TMP/fault/drt-index"
pod() { # NAME VARIABLE...: the container's command line in a clean environment
    mapfile -t variables <"$TMP/env-$1"
    env -i PATH="${programs:-$BIN}:$PATH" "${variables[@]}" "${@:2}" /bin/sh -c "$(cat "$TMP/command-$1")"
}
for ((i = parts - 1; i >= 0; i--)); do
    if [ $i = 2 ]; then
        programs=$TMP/fault expect 137 pod build JOB_COMPLETION_INDEX=$i DRT_FAULT=kill:5:file:before-rename
        expect 1 pod join
        [ ! -e "$TMP/data/store" ] || die "a join without all parts made a folder"
    fi
    expect 0 pod build JOB_COMPLETION_INDEX=$i
done
expect 0 pod join
expect 0 "$INDEX" verify --store "$TMP/data/store" --deep
expect 0 "$INDEX" build "$TMP/data/corpus" --out "$TMP/whole" --model "$TMP/model" --threads 1
contents() { "$INDEX" export --store "$1" 2>"$ERR" | sed -E 's/"(chunk|document)":[0-9]+,//g'; }
contents "$TMP/whole" >"$TMP/whole.contents"
[ "$(wc -l <"$TMP/whole.contents")" -gt 150 ] || die "the export is short"
contents "$TMP/data/store" | cmp - "$TMP/whole.contents" || die "the joined store is another"
expect 0 pod join # a second run: nothing to do
out_has "joined here already"
