#pragma once

namespace lockstep {

/// --stem: `conv7x7` is ResNet's, with stride 2 and max pooling; `conv3x3` is that of images of
/// CIFAR's size, without either; `standard` is one of them, by the size of the image. `deep` is
/// that of ResNet-D, three 3x3 convolutions. Source: T. He et al., "Bag of tricks for image
/// classification with convolutional neural networks", 2019, figure 2.
enum class Stem { standard, deep, conv7x7, conv3x3 };
/// --shortcut: how a block's shortcut reduces its image, by the stride of its 1x1 convolution or,
/// as in ResNet-D, by average pooling before it.
enum class Shortcut { convolution, avgpool };

}  // namespace lockstep
