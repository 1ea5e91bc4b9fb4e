#!/usr/bin/env bash
# Makes the index of a store in parts on one machine, several at a time, and merges them.
#
#   index_local.sh STORE FACTORY PARTS AT_A_TIME [options of drt-index index fill]
#
# FACTORY as IVF4096_HNSW32,SQ8, or auto. Run the same command again after a failure or a kill: finished parts are passed
# over, others continue. One process alone does the same by drt-index index --store STORE --index FACTORY.
set -euo pipefail
[ $# -ge 4 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
store=${1%/} factory=$2 parts=$3 at_a_time=$4
shift 4
drt-index index train --store "$store" --index "$factory"
seq "$parts" | xargs -P "$at_a_time" -I{} drt-index index fill --store "$store" --part "{}/$parts" "$@"
drt-index index merge --store "$store"
