"""A host with network ports in a sysfs of its own, for tests of what they count."""

from hpccoll.host import network_ports

ETHERNET = 1


class FakeHost:
    def __init__(self, sys):
        self.sys = sys

    def put(self, at, **files):
        for name, content in files.items():
            (self.sys / "class" / at).mkdir(parents=True, exist_ok=True)
            (self.sys / "class" / at / name).write_text(f"{content}\n")

    def netdev(
        self, name, sent=0, received=0, *, kind=ETHERNET, flags="0x1003", hardware=True, **more
    ):
        at = f"net/{name}"
        self.put(at, type=kind, flags=flags, mtu=9000, speed=more.pop("speed", 100000))
        self.put(
            f"{at}/statistics",
            **{"tx_bytes": sent, "rx_bytes": received, "tx_dropped": 0, "rx_dropped": 0, **more},
        )
        if hardware:
            (self.sys / "class" / at / "device").mkdir(exist_ok=True)

    def infiniband(self, name, sent=0, received=0, state="4: ACTIVE", hardware=None, **more):
        at = f"infiniband/{name}/ports/1"
        self.put(at, state=state, link_layer="InfiniBand", rate="200 Gb/sec (4X HDR)")
        self.put(f"{at}/counters", port_xmit_data=sent, port_rcv_data=received, **more)
        self.put(f"{at}/hw_counters", **(hardware or {}))

    def found(self):
        return [port.name for port in network_ports.find_ports(self.sys)]

    def read(self):
        return network_ports.read_counters(network_ports.find_ports(self.sys))
