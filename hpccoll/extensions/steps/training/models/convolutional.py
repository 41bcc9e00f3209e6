"""ResNet-50 and VGG-16 for images of 224 x 224 pixels and 1,000 classes, as torchvision builds them."""

from collections.abc import Iterator

from hpccoll.extensions.steps.training.model_shape import ModelShape, Module, Tensor

CLASSES = 1000
PIXELS = 224


def _convolution(
    name: str, inputs: int, outputs: int, kernel: int, pixels: int, *, bias: bool = False
) -> Module:
    """Return a convolution whose output has ``pixels`` x ``pixels``."""
    weights = inputs * outputs * kernel**2
    weight = Tensor("weight", weights)
    tensors = (weight, Tensor("bias", outputs)) if bias else (weight,)
    return Module(name, tensors, 2.0 * weights * pixels**2, weight_first=True)


def _norm(name: str, channels: int) -> Module:
    return Module(name, (Tensor("weight", channels), Tensor("bias", channels)), weight_first=True)


def _linear(name: str, inputs: int, outputs: int) -> Module:
    return Module(
        name, (Tensor("weight", inputs * outputs), Tensor("bias", outputs)), 2.0 * inputs * outputs
    )


def resnet50() -> ModelShape:
    """Return ResNet-50 v1.5, which strides in the 3 x 3 convolution: 25,557,032 parameters, 8.2 GFLOPs an image."""
    return ModelShape(
        "resnet50",
        tuple(_resnet50()),
        "float32",
        f"an image of {PIXELS} x {PIXELS}",
        "K. He et al.: Deep residual learning for image recognition, CVPR (2016); torchvision",
    )


def _resnet50() -> Iterator[Module]:
    yield _convolution("conv1", 3, 64, 7, PIXELS // 2)
    yield _norm("bn1", 64)
    inputs, pixels = 64, PIXELS // 4
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            before = pixels
            if stage > 1 and block == 0:
                pixels //= 2
            yield _convolution(f"{name}.conv1", inputs, width, 1, before)
            yield _norm(f"{name}.bn1", width)
            yield _convolution(f"{name}.conv2", width, width, 3, pixels)
            yield _norm(f"{name}.bn2", width)
            yield _convolution(f"{name}.conv3", width, 4 * width, 1, pixels)
            yield _norm(f"{name}.bn3", 4 * width)
            if block == 0:
                yield _convolution(f"{name}.downsample.0", inputs, 4 * width, 1, pixels)
                yield _norm(f"{name}.downsample.1", 4 * width)
            inputs = 4 * width
    yield _linear("fc", inputs, CLASSES)


def vgg16() -> ModelShape:
    """Return VGG-16 without batch norms: 138,357,544 parameters, 31 GFLOPs an image."""
    return ModelShape(
        "vgg16",
        tuple(_vgg16()),
        "float32",
        f"an image of {PIXELS} x {PIXELS}",
        "K. Simonyan, A. Zisserman: Very deep convolutional networks, ICLR (2015), configuration D; torchvision",
    )


def _vgg16() -> Iterator[Module]:
    inputs, pixels = 3, PIXELS
    number = 0
    for width, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            yield _convolution(f"features.{number}", inputs, width, 3, pixels, bias=True)
            inputs = width
            number = number + 2  # a ReLU follows
        pixels = pixels // 2
        number = number + 1  # and a pooling
    for number, wide, outputs in (
        (0, inputs * pixels**2, 4096),
        (3, 4096, 4096),
        (6, 4096, CLASSES),
    ):
        yield _linear(f"classifier.{number}", wide, outputs)
