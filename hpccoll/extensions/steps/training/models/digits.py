"""A network that learns, for scikit-learn's images of handwritten digits: its shape, and how it is trained.

It has 64, 128 and 10 units, with ReLU between its two layers, and softmax and cross-entropy after
them. A step takes the next BATCH images of those that are trained with, whatever the number of
ranks, so that runs on any number are one run; each rank has a part of the batch, and the parts
differ by one image where it does not divide. The order is drawn anew for each epoch. The optimizer
is plain SGD with the rate RATE. SEED draws the weights, the images that are held out, and the
orders.
"""

from hpccoll.extensions.steps.training.model_shape import ModelShape, Module, Tensor

DIGITS = "digits"

UNITS = 64, 128, 10
IMAGES, TRAINED = 1797, 1440
"""The images, and those that are trained with: a whole number of batches. The others are held out."""

BATCH = 32
EPOCH = TRAINED // BATCH
"""The steps of an epoch."""

STEPS = 5 * EPOCH
"""The steps of a run, unless others are asked for."""

RATE, SEED = 0.25, 8


def digits() -> ModelShape:
    """Return the shape of the network: 9,610 parameters."""
    layers = [
        Module(
            name,
            (Tensor("weight", inputs * outputs), Tensor("bias", outputs)),
            2.0 * inputs * outputs,
        )
        for name, inputs, outputs in zip(("hidden", "output"), UNITS, UNITS[1:], strict=False)
    ]
    return ModelShape(
        DIGITS,
        tuple(layers),
        "float32",
        "an image of 8 x 8",
        "E. Alpaydin, C. Kaynak: Optical recognition of handwritten digits, UCI (1998); scikit-learn",
    )
