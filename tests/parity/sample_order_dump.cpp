// sample_order_dump SAMPLES: prints the samples of the first epoch in their order, with seed 0.
#include "lockstep/data/sample_order.hpp"

#include <cstdlib>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  const lockstep::SampleOrder order(std::atoll(argv[1]), 0);
  for (std::int64_t i = 0; i < order.samples(); ++i) std::cout << order.at(0, i) << '\n';
}
