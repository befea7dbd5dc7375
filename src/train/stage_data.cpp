#include "stage_data.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/run/run_directory.hpp"

namespace lockstep {

std::shared_ptr<Staging> stage_data(const Config& config, const TrainingJob& job,
                                    const std::vector<Dataset*>& datasets) {
  if (config.stage_dir.empty()) return nullptr;
  std::vector<ShardToCopy> shards;
  std::vector<std::size_t> firsts;
  for (const Dataset* dataset : datasets) {
    firsts.push_back(shards.size());
    if (dataset == nullptr) continue;
    for (ShardToCopy& shard : dataset->shards_to_copy()) shards.push_back(std::move(shard));
  }
  auto staging = std::make_shared<Staging>(
      StagingOptions{
          .directory = config.stage_dir, .job = job_name(), .cores = job.binding.allowed},
      std::move(shards), job.grid, job.comm);
  for (std::size_t i = 0; i < datasets.size(); ++i) {
    if (datasets[i] != nullptr) datasets[i]->read_copies(staging, firsts[i]);
  }
  return staging;
}

void report_staging(Staging* staging, RunReporter& reporter) {
  if (staging == nullptr) return;
  for (const Staging::News& news : staging->take_news()) {
    if (news.bad) {
      reporter.warn(news.text);
    } else {
      reporter.say(news.text);
    }
  }
}

}  // namespace lockstep
