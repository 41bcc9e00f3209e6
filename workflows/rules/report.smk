rule report:
    input:
        raw_files,
    output:
        # 'snakemake --report' embeds the page; it needs no other file
        report(
            f"{OUT}/report/index.html",
            category="Collectives",
            labels={"sweep": Path(OUT).name},
            caption="../report/page.rst",
        ),
    log:
        f"{OUT}/logs/report.log",
    params:
        out=results,
    shell:
        "hpccoll report -- {params.out:q} > {log:q} 2>&1 || [ $? -eq 3 ]"
