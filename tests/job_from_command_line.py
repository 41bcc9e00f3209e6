"""Jobs, as command lines of ``hpccoll run`` ask for them."""

from hpccoll.cli.run_options import build_parser, job_from_args
from hpccoll.schedule import Layout


def job(*arguments, ranks=2, nodes=1):
    return job_from_args(build_parser().parse_args(arguments), Layout.of(ranks, ranks // nodes))
