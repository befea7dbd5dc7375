#pragma once

#include <string>

namespace lockstep {

/// What may happen to a file that an output's path names already.
enum class Existing { refuse, replace };

/// Checks the path of a file that a command is to write, before it computes anything. `option`
/// names it in messages, such as "--output". Error(cannot_write) if the path is a directory,
/// device, FIFO, socket or link: nothing is opened or replaced; if its directory is not there; or
/// if its parent is no directory. Error(usage) if there is a file and `existing` is refuse.
void require_output(const char* option, const std::string& path, Existing existing);

}  // namespace lockstep
