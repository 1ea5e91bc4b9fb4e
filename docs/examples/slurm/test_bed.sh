#!/usr/bin/env bash
# A Slurm of four nodes on this machine (Debian: slurmctld slurmd slurm-client munge; as root), for trying submit.sh:
#
#   test_bed.sh COMMAND [ARGUMENT...]      runs the command with this Slurm, then ends it
#
# Its state and logs go to $BED (/tmp/drt-slurm), which it makes anew. It listens on five ports from $PORT (16900) on.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for program in slurmctld slurmd munged sbatch; do
    command -v $program >/dev/null || { echo "test_bed.sh: $program is missing: apt-get install slurmctld slurmd slurm-client munge" >&2; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "test_bed.sh: slurmd runs as root" >&2; exit 77; }
bed=${BED:-/tmp/drt-slurm} port=${PORT:-16900} host=$(hostname -s)
[ ! -e "$bed" ] || [ -e "$bed/slurm.conf" ] || [ -z "$(ls -A "$bed")" ] || { echo "test_bed.sh: $bed is not one of its folders: give BED another" >&2; exit 1; }
rm -rf "$bed"
mkdir -p "$bed/state"
chown -R munge: "$bed" && chmod 755 "$bed"
export SLURM_CONF=$bed/slurm.conf
cat >"$SLURM_CONF" <<END
ClusterName=drt
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$bed/munge.socket
CredType=cred/munge
SlurmctldPort=$port
SlurmctldPidFile=$bed/slurmctld.pid
SlurmdPidFile=$bed/slurmd-%n.pid
SlurmdSpoolDir=$bed/spool-%n
SlurmctldLogFile=$bed/slurmctld.log
SlurmdLogFile=$bed/slurmd-%n.log
StateSaveLocation=$bed/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=2,batch_sched_delay=0
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$bed/jobs.log
NodeName=n[1-4] NodeAddr=127.0.0.1 NodeHostname=$host Port=[$((port + 1))-$((port + 4))] CPUs=1 RealMemory=512 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP
END
pids=()
end() {
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do kill "${pids[i]}" 2>/dev/null || true; done
    wait 2>/dev/null || true
}
trap end EXIT
su -s /bin/sh munge -c "mungekey -c -k '$bed/munge.key'" 2>/dev/null
setpriv --reuid munge --regid munge --clear-groups munged --foreground --key-file "$bed/munge.key" --socket "$bed/munge.socket" \
    --pid-file "$bed/munge.pid" --seed-file "$bed/munge.seed" --log-file "$bed/munge.log" >"$bed/munged.out" 2>&1 &
pids+=($!)
slurmctld -D -i >"$bed/slurmctld.out" 2>&1 &
pids+=($!)
for n in 1 2 3 4; do
    slurmd -D -N n$n >"$bed/slurmd-n$n.out" 2>&1 &
    pids+=($!)
done
for _ in $(seq 60); do
    [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 4 ] && break
    sleep 1
done
[ "$(sinfo -h -t idle -o %D)" = 4 ] || { sinfo; tail -n 5 "$bed"/*.log "$bed"/*.out; exit 1; } >&2
"$@"
