"""The shapes of ResNet-50's 161 parameter tensors, 25,557,032 elements, in the order torchvision lists them."""

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Width and number of bottleneck blocks of each stage (He et al. 2015, table 1)."""
EXPANSION = 4


def _shapes() -> list[tuple[int, ...]]:
    def convolution(outputs: int, inputs: int, kernel: int) -> list[tuple[int, ...]]:
        return [(outputs, inputs, kernel, kernel), (outputs,), (outputs,)]  # with the weight and bias of its batch norm

    shapes = convolution(64, 3, 7)
    inputs = 64
    for width, blocks in STAGES:
        for block in range(blocks):
            shapes += convolution(width, inputs, 1) + convolution(width, width, 3) + convolution(width * EXPANSION, width, 1)
            if block == 0:
                shapes += convolution(width * EXPANSION, inputs, 1)
            inputs = width * EXPANSION
    return [*shapes, (1000, inputs), (1000,)]


SHAPES = _shapes()
