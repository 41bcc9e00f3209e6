rule report:
    input:
        raw_files,
    output:
        f"{OUT}/report/index.html",
    log:
        f"{OUT}/logs/report.log",
    params:
        out=results,
    shell:
        "hpccoll report -- {params.out:q} > {log:q} 2>&1 || [ $? -eq 3 ]"
