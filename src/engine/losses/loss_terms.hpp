#pragma once

#include "binary_cross_entropy.hpp"
#include "mean_squared_error.hpp"
#include "softmax_cross_entropy.hpp"

#include <variant>

namespace lockstep {

/// The arithmetic of each loss, which both engines call. It is a sum over the classes of a sample:
///
///   Op                             the op of the graph
///   Sums                           sums over classes, which begin as zeros; merge() adds others
///   add(sums, row, k)              adds class k
///   loss(sums, row)                the sample's loss
///   kept(sums, row)                a value of the sample that gradient() reads; finite
///   gradient(logit, target, kept)  d loss / d logit of a class
///
/// The CPU keeps `kept` in fp64, a device in fp32.
using LossTerms =
    std::variant<SoftmaxCrossEntropyTerms, BinaryCrossEntropyTerms, MeanSquaredErrorTerms>;

}  // namespace lockstep
