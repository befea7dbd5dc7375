#include "lockstep/doctor/examination.hpp"

#include "conductor.hpp"
#include "facts_json.hpp"

#include <algorithm>

namespace lockstep::doctor {
namespace {

/// Rank 0 may be busy for long with others; where it is lost, the launcher ends the rest.
constexpr auto longest_silence = std::chrono::hours(24);
/// For the last words to leave.
constexpr auto parting = std::chrono::seconds(5);

Diagnosis conduct(Post& post, const ExaminationOptions& options) {
  Worker self(post, options);
  Conductor conductor(post, self, options);
  conductor.examine();
  Diagnosis diagnosis{.findings = conductor.findings(), .all_reached = conductor.all_reached()};
  diagnosis.fit =
      std::none_of(diagnosis.findings.begin(), diagnosis.findings.end(),
                   [](const Finding& finding) { return finding.verdict == Verdict::fail; });
  // Before the others are told to go: that they go may depend on what was lost.
  diagnosis.all_reached = diagnosis.all_reached && post.settled(Clock::now() + parting);
  for (int rank = 1; rank < post.size(); ++rank) {
    post.send(
        rank, command_tag,
        to_text({{"do", "end"}, {"fit", diagnosis.fit}, {"all_reached", diagnosis.all_reached}}));
  }
  diagnosis.all_reached = diagnosis.all_reached && post.settled(Clock::now() + parting);
  return diagnosis;
}

Diagnosis serve(Post& post, const ExaminationOptions& options) {
  Worker worker(post, options);
  for (;;) {
    const auto text = post.receive(0, command_tag, Clock::now() + longest_silence);
    if (!text) return {.findings = {}, .fit = false, .all_reached = false};
    const auto command = nlohmann::json::parse(*text);
    if (command.at("do") == "end") {
      return {.findings = {},
              .fit = command.at("fit").get<bool>(),
              .all_reached =
                  command.at("all_reached").get<bool>() && post.settled(Clock::now() + parting)};
    }
    post.send(0, answer_tag, to_text(worker.perform(command)));
  }
}

}  // namespace

Diagnosis examine(const ExaminationOptions& options) {
  Post post;
  return post.rank() == 0 ? conduct(post, options) : serve(post, options);
}

}  // namespace lockstep::doctor
