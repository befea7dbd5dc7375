#pragma once

/// Everything that a program needs to train a model of its own: docs/own-model.md. Only the headers
/// that this one includes are installed.

#include "lockstep/cli/job.hpp"
#include "lockstep/cli/program.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/graph/graph.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/train/trainer.hpp"
