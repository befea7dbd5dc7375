#include "lockstep/run/run_log.hpp"
#include "lockstep/run/tensorboard_writer.hpp"

#include "fuzz.hpp"

#include <nlohmann/json.hpp>

namespace lockstep::fuzz {

/// Reads the files that a resumed run finds: metrics.jsonl and an event file. The first byte
/// selects the file and the step at which it is cut.
void run(Bytes bytes) {
  static const Scratch scratch;
  if (bytes.empty()) return;
  std::filesystem::remove_all(scratch.path());
  std::filesystem::create_directories(scratch.path());
  const std::int64_t step = (bytes[0] >> 1) - 1;
  const Bytes rest = bytes.subspan(1);
  accepts([&] {
    if ((bytes[0] & 1) != 0) {
      static_cast<void>(scratch.write("metrics.jsonl", rest));
      MetricsLog log(scratch.path(), step);
      log.write({{"event", "step"}, {"step", step + 1}});
    } else {
      static_cast<void>(scratch.write("events.out.tfevents.1.host", rest));
      TensorboardWriter writer(scratch.path(), step);
      writer.scalar("loss", step + 1, 1.0);
    }
  });
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
