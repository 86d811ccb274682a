#!/usr/bin/env bash
# A real Slurm of one node, for tests: its own configuration, ports, state and munge, all in one
# folder, so that it touches no other Slurm on the machine.
# Usage: start_slurm.sh start FOLDER [--install]   then export SLURM_CONF=FOLDER/slurm.conf
#        start_slurm.sh stop FOLDER
# --install: as root on Debian, get the packages slurm-wlm and munge when they are missing.
# Ends with code 77, and the reason on the last line, where it can't be started.
# Partitions: main (default), and urgent, whose jobs preempt those of main.
set -euo pipefail

verb=$1 folder=$2 install=${3:-}
cannot() { echo "$1"; exit 77; }
PATH=$PATH:/usr/sbin:/sbin

stop() {
  for daemon in slurmd slurmctld munged; do
    if [ -f "$folder/$daemon.pid" ]; then kill "$(cat "$folder/$daemon.pid")" 2>/dev/null || true; fi
  done
}

if [ "$verb" = stop ]; then stop; exit 0; fi

for daemon in slurmctld slurmd munged; do
  if command -v $daemon >/dev/null; then continue; fi
  [ "$install" = --install ] || cannot "$daemon is missing: install slurm-wlm and munge"
  [ "$(id -u)" = 0 ] || cannot "$daemon is missing, and only root can install it"
  command -v apt-get >/dev/null || cannot "$daemon is missing, and there is no apt-get"
  apt-get update -qq >/dev/null 2>&1 || cannot "$daemon is missing, and apt-get update fails"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq slurm-wlm munge >/dev/null 2>&1 \
    || cannot "$daemon is missing, and apt-get install slurm-wlm munge fails"
done

mkdir -p "$folder/state" "$folder/spool"
chmod 755 "$folder"
host=$(hostname -s)
me=$(id -un)
read -r controller node < <(python3 - <<'PY'
import socket
taken = [socket.socket() for _ in range(2)]
for one in taken:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in taken))
PY
)
cat > "$folder/slurm.conf" <<CONF
ClusterName=tests
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller
SlurmdPort=$node
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=10
MinJobAge=30
MaxArraySize=5
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=100000,bf_interval=1
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes=$host MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
CONF
export SLURM_CONF=$folder/slurm.conf
head -c 1024 /dev/urandom > "$folder/munge.key"
chmod 600 "$folder/munge.key"
munged --force --socket="$folder/munge.socket" --key-file="$folder/munge.key" \
  --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" \
  --seed-file="$folder/munge.seed" >"$folder/munged.out" 2>&1 \
  || cannot "munged does not start: $(tail -n 1 "$folder/munged.out")"
slurmctld >"$folder/slurmctld.out" 2>&1 \
  || cannot "slurmctld does not start: $(tail -n 1 "$folder/slurmctld.out")"
slurmd >"$folder/slurmd.out" 2>&1 \
  || cannot "slurmd does not start: $(tail -n 1 "$folder/slurmd.out")"
for _ in $(seq 60); do
  if sinfo -h -p main -o %t 2>/dev/null | grep -q idle; then exit 0; fi
  sleep 0.5
done
tail -n 3 "$folder/slurmctld.log" "$folder/slurmd.log" || true
stop
cannot "its node does not become idle"
