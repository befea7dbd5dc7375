#pragma once

namespace lockstep {

/// --stem: `deep` is that of ResNet-D, three 3x3 convolutions. Source: T. He et al., "Bag of tricks
/// for image classification with convolutional neural networks", 2019, figure 2.
enum class Stem { standard, deep };
/// --shortcut: how a block's shortcut reduces its image, by the stride of its 1x1 convolution or,
/// as in ResNet-D, by average pooling before it.
enum class Shortcut { convolution, avgpool };

}  // namespace lockstep
