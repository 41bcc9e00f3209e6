import pytest

from hpccoll.evidence.nic_gpu_affinity import (
    NearestNics,
    describe_balance,
    describe_graphs,
    parse_topology_dump,
    read_sysfs_topology,
)

GPU = '<pci busid="{0}" class="0x030200"><gpu dev="{1}" sm="90" rank="{1}" gdr="1"/></pci>'
NIC = '<pci busid="{0}" class="0x020000"><nic><net name="{1}" dev="0" speed="400000" port="1" gdr="1"/></nic></pci>'


def switch(address, *inner):
    return f'<pci busid="{address}" class="0x060400">{"".join(inner)}</pci>'


def system(*cpus):
    inside = "".join(
        f'<cpu numaid="{number}" arch="x86_64">{cpu}</cpu>' for number, cpu in enumerate(cpus)
    )
    return f'<system version="1">{inside}</system>'


def near(*parts):
    return parse_topology_dump(system(*parts))


def test_the_distance_follows_from_the_common_path():
    first, second = (
        switch(f"s{n}", GPU.format(f"a{n}", n), NIC.format(f"b{n}", f"n{n}")) for n in (0, 1)
    )
    assert near(first, second) == (
        NearestNics(0, "PIX", ("n0",), 0),
        NearestNics(1, "PIX", ("n1",), 0),
    )
    gpu, nic = switch("t", GPU.format("a", 0)), switch("u", NIC.format("b", "n"))
    distances = [
        each.distance for each in (*near(switch("s", gpu, nic)), *near(gpu + nic), *near(gpu, nic))
    ]
    assert distances == ["PXB", "PHB", "SYS"]
    words = "not balanced: most GPUs have a NIC at PIX, but GPU 2: SYS (n0, n1)"
    assert describe_balance(near(first + second, switch("u", GPU.format("e", 2)))) == words


def test_unequal_sharing_of_nics_is_not_balanced():
    nics = [
        NearestNics(0, "PIX", ("n0",)),
        NearestNics(1, "PIX", ("n0",)),
        NearestNics(2, "PIX", ("n1",)),
    ]
    assert (
        describe_balance(nics)
        == "not balanced: each GPU has a NIC at PIX, but some share theirs (n0: 2 GPUs)"
    )
    assert describe_balance(nics[:2]) == "balanced: each GPU has a NIC at PIX"
    assert describe_balance([]) == "no GPU and NIC to compare"


def test_nvlinks_are_counted_over_all_switches():
    links = [
        f'<nvlink target="a" count="{count}"/><nvlink target="b" count="{count}"/>'
        for count in (9, 8)
    ]
    gpus = [
        GPU.format(f"a{number}", number).replace("/></", f">{inner}</gpu></")
        for number, inner in enumerate(links)
    ]
    inside = (
        switch(f"s{number}", gpu, NIC.format(f"b{number}", f"n{number}"))
        for number, gpu in enumerate(gpus)
    )
    found = near("".join(inside))
    assert describe_balance(found[:1]) == "balanced: each GPU has a NIC at PIX and 18 NVLinks"
    words = (
        "not balanced: each GPU has a NIC at PIX, but not as many NVLinks (GPU 0: 18, GPU 1: 16)"
    )
    assert describe_balance(found) == words


def test_sysfs_gives_the_same_distances(tmp_path):
    def device(name, path, node):
        place = tmp_path / "devices" / path
        place.mkdir(parents=True)
        (place / "numa_node").write_text(f"{node}\n")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(place)

    device(
        "bus/pci/devices/0000:18:00.0",
        "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0",
        0,
    )
    device("bus/pci/devices/0000:98:00.0", "pci0000:95/0000:95:01.0/0000:98:00.0", 1)
    device(
        "class/infiniband/mlx5_0/device",
        "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0",
        0,
    )
    device("class/infiniband/mlx5_1/device", "pci0000:a0/0000:a0:01.0/0000:a1:00.0", 1)
    gpus = {0: "0000:18:00.0", 1: "0000:98:00.0"}
    found = read_sysfs_topology(gpus, tmp_path)
    assert read_sysfs_topology(gpus, tmp_path / "without adapters") == ()
    assert found == (NearestNics(0, "PIX", ("mlx5_0",)), NearestNics(1, "PHB", ("mlx5_1",)))


def test_graphs_have_channels_and_bandwidths():
    text = '<graphs version="1"><graph id="0" pattern="4" nchannels="16" speedintra="20" speedinter="24.5"/></graphs>'
    assert (
        describe_graphs(text)
        == "NCCL's search: 16 channels of 20 GB/s inside a node and 24.5 between"
    )
    assert describe_graphs('<graphs version="1"/>') == "NCCL's search: no channels"


@pytest.mark.parametrize("text", ["", "<system", "<html/>"])
def test_another_file_is_no_dump(text):
    with pytest.raises(ValueError, match="no dump of NCCL"):
        parse_topology_dump(text)
