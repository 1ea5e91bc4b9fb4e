#!/usr/bin/env bash
# Builds a corpus in parts on one machine, several at a time, and joins them.
#
#   build_local.sh CORPUS STORE PARTS AT_A_TIME [options of drt-index build]
#
# Run the same command again after a failure or a kill: finished parts are passed over, others continue.
set -euo pipefail
[ $# -ge 4 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
corpus=$1 store=$2 parts=$3 at_a_time=$4
shift 4
seq "$parts" | xargs -P "$at_a_time" -I{} drt-index build "$corpus" --part "{}/$parts" --out "$store.parts" "$@"
drt-index join "$store.parts"/part-*-of-"$parts" --out "$store"
