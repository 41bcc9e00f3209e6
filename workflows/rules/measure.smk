# Outputs are update(): Snakemake would otherwise delete what was measured before it runs a rule again. The log of a job
# is that of all its attempts.


checkpoint plan:
    input:
        sweep_file,
    output:
        update(f"{OUT}/plan.json"),
    log:
        f"{OUT}/logs/plan.log",
    params:
        out=results,
        place=place,
    shell:
        "hpccoll plan {params.place:q} --out={params.out:q} -- {input:q} > {log:q} 2>&1"


rule measure:
    input:
        plan=ancient(f"{OUT}/plan.json"),
    output:
        update(f"{OUT}/raw/{{job}}.h5"),
    log:
        f"{OUT}/logs/{{job}}.log",
    resources:
        mpi=asked("mpi", ""),
        nodes=asked("nodes", 1),
        tasks=asked("tasks", 1),
        cpus_per_task=asked("cpus_per_task", 1),
        runtime=asked("runtime", 0),
        mem_mb=asked("mem_mb", 0),
        slurm_partition=asked("slurm_partition", ""),
        slurm_account=asked("slurm_account", ""),
        qos=asked("qos", None),
        constraint=asked("constraint", None),
        gres=asked("gres", ""),
        tasks_per_gpu=asked("tasks_per_gpu", 0),
        slurm_extra=asked("slurm_extra", ""),
    shell:
        "hpccoll launch --out={output:q} -- {input.plan:q} {wildcards.job:q} >> {log:q} 2>&1"


rule raw:
    input:
        raw_files,
