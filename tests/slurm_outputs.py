"""What Slurm's commands printed on real clusters."""

PARTITIONS = """\
PartitionName=debug AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A DefaultTime=NONE \
DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=2 MaxTime=00:30:00 MinNodes=0 LLN=NO \
MaxCPUsPerNode=UNLIMITED Nodes=n[1-4] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO \
OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=8 TotalNodes=4 SelectTypeParameters=NONE JobDefaults=(null) \
DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=8,mem=4M,node=4,billing=8
PartitionName=work AllowGroups=ALL AllowAccounts=physics,chem AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A \
DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED \
MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=n[1-4] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO \
OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=8 TotalNodes=4 SelectTypeParameters=NONE \
JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=8,mem=4M,node=4,billing=8
"""
NODES = "n1|idle|2|(null)\nn2|idle|2|worker,hdr\nn3|idle|2|aggregator\nn4|idle|2|worker\n"
DISABLED = """\
Slurm accounting storage is disabled
You are not running a supported accounting_storage plugin
Only 'accounting_storage/slurmdbd' is supported.
"""
JOB = """\
JobId=7 JobName=hpccoll-abc UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901754 Nice=0 Account=(null) \
QOS=(null) JobState=TIMEOUT Reason=TimeLimit Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:15 \
RunTime=00:01:12 TimeLimit=00:01:00 TimeMin=N/A SubmitTime=2026-11-21T13:11:33 Partition=work AllocNode:Sid=head:7 \
ReqNodeList=(null) ExcNodeList=(null) NodeList=n[1-2] BatchHost=n1 NumNodes=2 NumCPUs=4 NumTasks=2 CPUs/Task=1 \
ReqB:S:C:T=0:0:*:* TRES=cpu=4,mem=2M,node=2,billing=4 Comment=rule_measure_wildcards_mpi.n2x1 \
StdOut=/home/me/my results/1.log Power=
"""

MPI_TYPES = "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4\n"
