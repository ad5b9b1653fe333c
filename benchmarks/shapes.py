"""The shapes of the parameters of well-known networks, in the order their layers run."""

Shapes = list[tuple[int, ...]]

_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Width and number of bottleneck blocks of each of ResNet-50's stages (He et al. 2015, table 1)."""
_EXPANSION = 4
_VGG16 = (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
"""Outputs of its convolutions (Simonyan and Zisserman 2014, table 1, D)."""


def _resnet50() -> Shapes:
    def convolution(outputs: int, inputs: int, kernel: int) -> Shapes:
        return [(outputs, inputs, kernel, kernel), (outputs,), (outputs,)]  # with the weight and bias of its batch norm

    shapes = convolution(64, 3, 7)
    inputs = 64
    for width, blocks in _STAGES:
        for block in range(blocks):
            shapes += convolution(width, inputs, 1) + convolution(width, width, 3) + convolution(width * _EXPANSION, width, 1)
            if block == 0:
                shapes += convolution(width * _EXPANSION, inputs, 1)
            inputs = width * _EXPANSION
    return [*shapes, (1000, inputs), (1000,)]


def _vgg16() -> Shapes:
    shapes: Shapes = []
    for inputs, outputs in zip((3, *_VGG16), _VGG16, strict=False):
        shapes += [(outputs, inputs, 3, 3), (outputs,)]
    for inputs, outputs in ((512 * 7 * 7, 4096), (4096, 4096), (4096, 1000)):
        shapes += [(outputs, inputs), (outputs,)]
    return shapes


def _lstm(words: int = 10_000, width: int = 1500, layers: int = 2) -> Shapes:
    layer: Shapes = [(4 * width, width), (4 * width, width), (4 * width,), (4 * width,)]
    return [(words, width), *layer * layers, (words, width), (words,)]


SHAPES = {"resnet50": _resnet50(), "vgg16": _vgg16(), "lstm": _lstm()}
"""By name: 161 tensors with 25,557,032 elements; 32 with 138,357,544; 11 with 66,034,000, the large language model of Zaremba et
al. 2014."""
