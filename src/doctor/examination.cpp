#include "lockstep/doctor/examination.hpp"

#include "coordinator.hpp"
#include "facts_json.hpp"

#include <algorithm>

namespace lockstep::doctor {
namespace {

/// Limit for rank 0, which may be busy with others; if it is lost, the launcher ends the job.
constexpr auto longest_silence = std::chrono::hours(24);
/// How long to wait until the last messages are sent.
constexpr auto parting = std::chrono::seconds(5);

Diagnosis coordinate(Mailbox& mailbox, const ExaminationOptions& options) {
  Worker self(mailbox, options);
  Coordinator coordinator(mailbox, self, options);
  coordinator.examine();
  Diagnosis diagnosis{.findings = coordinator.findings(), .all_reached = coordinator.all_reached()};
  diagnosis.fit =
      std::none_of(diagnosis.findings.begin(), diagnosis.findings.end(),
                   [](const Finding& finding) { return finding.verdict == Verdict::fail; });
  // Checked before the end message, which tells the others whether they can finalize MPI.
  diagnosis.all_reached = diagnosis.all_reached && mailbox.settled(Clock::now() + parting);
  for (int rank = 1; rank < mailbox.size(); ++rank) {
    send_json(mailbox, rank, command_tag,
              {{"do", "end"}, {"fit", diagnosis.fit}, {"all_reached", diagnosis.all_reached}});
  }
  diagnosis.all_reached = diagnosis.all_reached && mailbox.settled(Clock::now() + parting);
  return diagnosis;
}

Diagnosis serve(Mailbox& mailbox, const ExaminationOptions& options) {
  Worker worker(mailbox, options);
  for (;;) {
    const auto received = mailbox.receive(0, command_tag, Clock::now() + longest_silence);
    if (!received) return {.findings = {}, .fit = false, .all_reached = false};
    const nlohmann::json command = json_in(*received);
    if (command.at("do") == "end") {
      return {.findings = {},
              .fit = command.at("fit").get<bool>(),
              .all_reached =
                  command.at("all_reached").get<bool>() && mailbox.settled(Clock::now() + parting)};
    }
    send_json(mailbox, 0, answer_tag, worker.perform(command));
  }
}

}  // namespace

Diagnosis examine(const ExaminationOptions& options) {
  Mailbox mailbox(MPI_COMM_WORLD);  // creating another communicator is collective
  return mailbox.rank() == 0 ? coordinate(mailbox, options) : serve(mailbox, options);
}

}  // namespace lockstep::doctor
