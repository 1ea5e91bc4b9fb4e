# options.sh -- sourced by scripts that measure on a GPU machine: reads FOLDER and options, and makes the work folder. The comment lines of a
# script that begin with its path, or with options, are its usage.

options_usage() { sed -n 's/^#   tests/usage: tests/p; s/^#       \[--/    [--/p' "$0" >&2; exit 2; }

# options_read "NAME..." "FLAG..." FOLDER [--NAME VALUE | --FLAG]...: sets the variable NAME (with _ for -), or FLAG to 1. Defaults are what the
# variables contain before. Then it sets folder, host_gpus (that programs see), and work, a new folder in the old value of work (/tmp), which is
# removed at the end. Programs of FOLDER find their libraries. Prints the host.
options_read() {
    local option_names=" $1 " option_flags=" $2 " option
    shift 2
    [ $# -gt 0 ] && [ -d "$1" ] || options_usage
    folder=$(cd "$1" && pwd)
    shift
    while [ $# -gt 0 ]; do
        option=${1#--}
        [ "--$option" = "$1" ] || options_usage
        if [[ $option_flags == *" $option "* ]]; then
            printf -v "${option//-/_}" %s 1
            shift
        elif [[ $option_names == *" $option "* ]] && [ $# -gt 1 ]; then
            printf -v "${option//-/_}" %s "$2"
            shift 2
        else
            options_usage
        fi
    done
    export LD_LIBRARY_PATH=$folder:/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    work=${work:-${TMPDIR:-/tmp}}/$(basename "$0" .sh).$$
    mkdir -p "$work" || exit 1
    trap 'rm -rf "$work"' EXIT
    host_gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
    [ -z "${CUDA_VISIBLE_DEVICES:-}" ] || host_gpus=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | wc -l)
    echo "host: $host_gpus GPUs ($(nvidia-smi -L 2>/dev/null | head -n 1 | cut -d '(' -f 1)), $(nproc) processors"
}

# seconds COMMAND...: runs it, with its output in $work/out and $work/err; sets `took`. The result is the command's.
seconds() {
    local begin=$EPOCHREALTIME code=0
    "$@" >"$work/out" 2>"$work/err" || code=$?
    took=$(awk "BEGIN { printf \"%.2f\", $EPOCHREALTIME - $begin }")
    return $code
}

# stages FILE: of each stage in FILE (--log-json): its seconds, and the time of the day at which it ended.
stages() {
    awk -F '"stage":"' '/"event":"progress"/ { split($2, stage, "\""); if (!(stage[1] in last)) order[++n] = stage[1]; last[stage[1]] = $0 }
        END { for (i = 1; i <= n; i++) { seconds = last[order[i]]; sub(/.*"seconds":/, "", seconds); sub(/[,}].*/, "", seconds)
              time = last[order[i]]; sub(/.*"time":"[^T]*T/, "", time); sub(/Z.*/, "", time)
              printf "  %s: %.2f s, ended %s\n", order[i], seconds, time } }' "$1"
}
