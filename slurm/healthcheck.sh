#!/usr/bin/env bash
# Checks the node on which it runs by 'hpccoll diagnose --here', drains it if it is bad, and resumes it once it is
# healthy. Only a node whose reason begins with "hpccoll:" is resumed. In slurm.conf:
#
#   HealthCheckProgram=/opt/hpccoll/slurm/healthcheck.sh
#   HealthCheckInterval=900
#   HealthCheckNodeState=IDLE
#   Prolog=/opt/hpccoll/slurm/healthcheck.sh
#
# IDLE spares jobs the check, and includes drained nodes. As Prolog, it delays each job by the time of the check; on a
# bad node it ends with 1, and Slurm requeues the job. A check that says "cannot tell" changes nothing.
set -euo pipefail

hpccoll=${HPCCOLL:-/opt/hpccoll/bin/hpccoll}
reference=${HPCCOLL_REFERENCE:-/etc/hpccoll/node.json} # of 'hpccoll diagnose --here --make-reference'; may be missing
limit_s=55                                             # Slurm ends its HealthCheckProgram after 60 s

export PATH # slurmd gives its programs none; scontrol must be on it
node=${SLURMD_NODENAME:-$(hostname -s)}

exec 9> "${RUNTIME_DIRECTORY:-/run}/hpccoll-health-$node.lock"
flock --nonblock 9 || exit 0 # an earlier check still runs

options=()
[ ! -e "$reference" ] || options=(--reference "$reference")
code=0
line=$(timeout "$limit_s" "$hpccoll" diagnose --here "${options[@]}" 9>&-) || code=$?

state=$(scontrol show node --oneliner "$node")
is_drained() { [[ $state =~ " State="[^\ ]*DRAIN ]]; }
is_ours() { [[ $state == *" Reason=hpccoll:"* ]]; }

case $code,$line in
    3,*)
        if ! is_drained || is_ours; then # the reason of an administrator stays
            scontrol update NodeName="$node" State=DRAIN Reason="hpccoll: $line"
        fi
        [ -z "${SLURM_JOB_ID:-}" ] || exit 1 # as Prolog
        ;;
    0,healthy*)
        if is_drained && is_ours; then
            scontrol update NodeName="$node" State=RESUME
        fi
        ;;
    0,*) ;; # cannot tell
    *)
        echo "hpccoll diagnose --here ended with $code on $node" >&2 # slurmd logs it
        [ -n "${SLURM_JOB_ID:-}" ] || exit "$code"                   # a check that is broken fails no job
        ;;
esac
