"""A fake of the module pynvml, with a GPU that supports what a test sets."""

from types import SimpleNamespace

BUS = "0000:1b:00.0"
LONG, SHORT = 3, 1
"""NVML_VALUE_TYPE_UNSIGNED_LONG_LONG and NVML_VALUE_TYPE_UNSIGNED_INT."""


class NvmlError(Exception):
    """NVMLError of pynvml."""


class Nvml:
    """The module: attributes and fields that a test sets are supported, and no others.

    Args:
        fields: the values of fields, by name and scope; those in ``short`` have 32 bits.
        queries: the answers of functions without "nvmlDeviceGet", for all arguments or by
            (function, argument).
    """

    NVMLError = NvmlError

    def __init__(self, fields=None, short=(), **queries):
        self.fields, self.short, self.queries, self.used = fields or {}, short, queries, set()

    def __getattr__(self, name):
        self.used.add(name)
        if name.isupper():
            return name
        if name.startswith("c_"):
            raise AttributeError(name)
        query = name.removeprefix("nvmlDeviceGet")

        def answer(*about):
            found = self.queries.get((query, *about[1:]), self.queries.get(query))
            if found is None:
                raise NvmlError(3)
            return found(*about) if callable(found) else found

        return answer

    def nvmlDeviceGetHandleByPciBusId(self, bus):  # noqa: N802
        if bus != BUS:
            raise NvmlError(6)
        return bus

    def nvmlDeviceGetFieldValues(self, _gpu, fields):  # noqa: N802
        ((name, scope),) = fields
        key = name.removeprefix("NVML_FI_DEV_"), scope
        value_type = SHORT if key[0] in self.short else LONG
        value = SimpleNamespace(ullVal=self.fields.get(key))
        return [
            SimpleNamespace(
                nvmlReturn=0 if key in self.fields else 3, valueType=value_type, value=value
            )
        ]
