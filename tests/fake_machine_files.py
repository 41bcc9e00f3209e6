"""Machines with GPUs, as the files by which they are known, by their names; each is a part of one."""

GPUS = {f"dev/nvidia{number}": "" for number in range(8)} | {
    "dev/nvidiactl": "",
    "dev/nvidia-uvm": "",
    **{
        f"proc/driver/nvidia/gpus/0000:{bus}:00.0/information": "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\n"
        for bus in ("19", "3b")
    },
}
OPEN = {
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
    "GCC version:  gcc version 13.2.0\n"
}
CLOSED = {
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15 UTC\n"
}
SWITCHES = {f"dev/nvidia-nvswitch{number}": "" for number in range(4)} | {
    "dev/nvidia-nvswitchctl": ""
}
MANAGED = {"proc/1234/comm": "nv-fabricmanage\n"}
LINUX = {"proc/sys/kernel/osrelease": "6.8.0-40-generic\n"}


def port(
    name, layer="InfiniBand", rate="400 Gb/sec (4X NDR)", state="4: ACTIVE", driver="mlx5_core"
):
    """Return the files of an adapter with a port; a value that ends in / is where a link leads."""
    place = f"sys/class/infiniband/{name}"
    return {
        f"{place}/ports/1/link_layer": f"{layer}\n",
        f"{place}/ports/1/rate": f"{rate}\n",
        f"{place}/ports/1/state": f"{state}\n",
        f"{place}/device/driver": f"sys/bus/pci/drivers/{driver}/",
    }


RAILS = (
    port("mlx5_0") | port("mlx5_1") | port("mlx5_2", "Ethernet", "100 Gb/sec (4X EDR)", "1: DOWN")
)
EFA = port("rdmap79s0", "Unspecified", "100 Gb/sec (4X EDR)", driver="efa")


def adapter(
    name,
    link="32.0 GT/s PCIe x16",
    fastest="32.0 GT/s PCIe x16",
    *,
    address="0000:1a:00.0",
    board="fc4c:ea03:00f9:4230",
    interface="",
    mtu=9000,
    connector="p0",
    **about,
):
    """Return the files of an adapter with a port, and of the PCIe link and the interface behind it."""
    place, device = f"sys/class/infiniband/{name}", f"sys/devices/pci0000:15/{address}"
    of_port = port(name, **about)
    driver = of_port.pop(f"{place}/device/driver")
    speed, _, width = link.rpartition(" x")
    most, _, widest = fastest.rpartition(" x")
    files = of_port | {
        f"{device}/driver": driver,
        f"{device}/current_link_speed": f"{speed}\n",
        f"{device}/current_link_width": f"{width}\n",
        f"{device}/max_link_speed": f"{most}\n",
        f"{device}/max_link_width": f"{widest}\n",
        f"{place}/device": f"{device}/",
        f"{place}/sys_image_guid": f"{board}\n",
    }
    if interface:
        files |= {
            f"{place}/ports/1/gid_attrs/ndevs/0": f"{interface}\n",
            f"sys/class/net/{interface}/mtu": f"{mtu}\n",
            f"sys/class/net/{interface}/phys_port_name": f"{connector}\n",
        }
    return files


def spark(mtu=9000, width=4, second="4: ACTIVE"):
    """Return the files of the port of a DGX Spark: two adapters on PCIe links of their own."""
    about = {"layer": "Ethernet", "rate": "200 Gb/sec (4X HDR)", "mtu": mtu}
    links = [f"32.0 GT/s PCIe x{lanes}" for lanes in (4, width)]
    return adapter(
        "rocep1s0f0", links[0], links[0], address="0000:01:00.0", interface="enp1s0f0np0", **about
    ) | adapter(
        "roceP2p1s0f0", links[1], links[0], address="0002:01:00.0", interface="enP2p1s0f0np0",
        state=second, **about,
    )  # fmt: skip


def equip(root, *parts):
    """Write files below ``root``."""
    for name, text in {name: text for part in parts for name, text in part.items()}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.endswith("/"):
            (root / text).mkdir(parents=True, exist_ok=True)
            path.symlink_to(root / text)
        else:
            path.write_text(text)
    return root
