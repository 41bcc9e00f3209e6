"""Jobs, as command lines of ``hpccoll run`` ask for them."""

from hpccoll.run.job_from_args import job_of
from hpccoll.run.options import parser
from hpccoll.schedule import Layout


def job(*arguments, ranks=2, nodes=1):
    return job_of(parser().parse_args(arguments), Layout.of(ranks, ranks // nodes))
