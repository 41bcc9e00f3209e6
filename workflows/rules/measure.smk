# Outputs are update(): Snakemake would otherwise delete what was measured before it runs a rule again. Exit code 3 is a
# verdict on what was measured: the file is there, and says it.


checkpoint plan:
    input:
        CONFIG,
    output:
        update(f"{OUT}/plan.json"),
    log:
        f"{OUT}/logs/plan.log",
    params:
        out=results,
    shell:
        "hpccoll plan {input:q} --out {params.out:q} > {log:q} 2>&1"


rule measure:
    input:
        plan=ancient(f"{OUT}/plan.json"),
    output:
        update(f"{OUT}/raw/{{job}}.h5"),
    log:
        f"{OUT}/logs/{{job}}.log",
    params:
        job=f"{OUT}/jobs/{{job}}.json",
        launch=launch,
    shell:
        "{params.launch} hpccoll run --job {params.job:q} --out {output:q} > {log:q} 2>&1 || [ $? -eq 3 ]"


rule raw:
    input:
        raw_files,
