#!/usr/bin/env bash
# Runs a program whose searches of a store are divided among the ranks of an Open MPI job: each rank starts a worker with
# a slice of the store, rank 0 runs the program with these workers. Its standard input and output are those of mpirun.
#
#   mpirun -n 8 --bind-to none search.sh STORE drt-index search --store STORE --queries q.fbin --json
#   mpirun -n 8 --bind-to none search.sh STORE drt-eval ppl --store STORE --corpus-retrieval --data valid.jsonl
#
# Ranks on several hosts find one another in the folder DRT_MPI_FOLDER (default: the current one), which all must see;
# STORE is then a snapshot (drt-index freeze) or a copy on each host. WORKER_OPTIONS are more options of drt-index worker.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
rank=${OMPI_COMM_WORLD_RANK:?run by mpirun} ranks=$OMPI_COMM_WORLD_SIZE store=$1
shift
job=${DRT_MPI_FOLDER:-.}/mpi-search.${PMIX_NAMESPACE:?run by mpirun}
ip=127.0.0.1
[ "$OMPI_COMM_WORLD_LOCAL_SIZE" = "$ranks" ] || ip=$(hostname -I | cut -d ' ' -f 1)

worker=
finish() {
    [ -z "$worker" ] || kill "$worker" 2>/dev/null || true
    [ "$rank" != 0 ] || rm -rf "$job"
}
trap finish EXIT
alive() { # the worker; a rank that ends with an error ends them all
    kill -0 "$worker" 2>/dev/null || { echo "search.sh: the worker of rank $rank has ended" >&2; exit 1; }
}

if [ "$rank" = 0 ]; then
    mkdir -m 700 "$job"
    (umask 077; head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$job/key.new")
    mv "$job/key.new" "$job/key"
fi
until [ -e "$job/key" ]; do sleep 0.02; done
# shellcheck disable=SC2086
drt-index worker --store "$store" --slice "$((rank + 1))/$ranks" --listen "$ip:0" --port-file "$job/port.$rank" \
    --api-key-file "$job/key" ${WORKER_OPTIONS:-} </dev/null >/dev/null &
worker=$!

if [ "$rank" != 0 ]; then
    until [ -s "$job/port.$rank" ]; do alive; sleep 0.02; done
    echo "$ip:$(cat "$job/port.$rank")" >"$job/new.$rank"
    mv "$job/new.$rank" "$job/address.$rank"
    while [ -e "$job/address.$rank" ]; do alive; sleep 0.1; done # rank 0 removes the folder at the end
    exit 0
fi
until [ -s "$job/port.0" ]; do alive; sleep 0.02; done
workers=$ip:$(cat "$job/port.0")
for ((i = 1; i < ranks; i++)); do
    until [ -e "$job/address.$i" ]; do alive; sleep 0.02; done
    workers+=,$(cat "$job/address.$i")
done
"$@" --workers "$workers" --worker-key-file "$job/key"
