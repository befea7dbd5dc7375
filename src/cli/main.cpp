#include "lockstep/cli/program.hpp"

int main(int argc, char** argv) {
  return lockstep::run_program(argc, argv);
}
