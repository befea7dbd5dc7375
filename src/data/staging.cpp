#include "lockstep/data/staging.hpp"

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/units.hpp"
#include "lockstep/runtime/thread_binding.hpp"
#include "memory_storage.hpp"
#include "shard_copy.hpp"
#include "stage_directory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

/// A tenth of the free memory is left to the run.
constexpr std::uint64_t memory_reserve_share = 10;

std::string board_name(const std::string& directory) {
  return directory + "/ready";
}

/// Writes zeros instead of leaving a hole, so a full disk fails here and not as SIGBUS later.
void create_board(const std::string& path, std::size_t shards) {
  const Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  const std::vector<char> zeros(shards, 0);
  if (!file || ::write(file.get(), zeros.data(), shards) != static_cast<ssize_t>(shards)) {
    fail(ExitStatus::cannot_write,
         "cannot write {} ({}); check that --stage-dir is writable and not full", path,
         std::strerror(errno));
  }
}

}  // namespace

StagePlan plan_staging(std::span<const std::uint64_t> sizes, std::uint64_t free,
                       const ProcessGrid& grid) {
  StagePlan plan;
  const std::size_t first =
      sizes.size() * static_cast<std::size_t>(grid.node) / static_cast<std::size_t>(grid.nodes);
  for (std::size_t position = 0; position < sizes.size(); ++position) {
    const std::size_t i = (first + position) % sizes.size();
    if (sizes[i] <= free - plan.bytes) {
      plan.chosen.push_back(i);
      plan.bytes += sizes[i];
    } else {
      plan.left_out_bytes += sizes[i];
    }
  }
  return plan;
}

class Staging::Directory final {
 public:
  Directory(const StagingOptions& options, const std::vector<ShardToCopy>& shards,
            const ProcessGrid& grid)
      : parent_(options.directory), free_(prepare_for_staging(parent_)) {
    std::vector<std::uint64_t> sizes;
    sizes.reserve(shards.size());
    for (const ShardToCopy& shard : shards) sizes.push_back(shard.bytes);
    const std::string kind = memory_file_system(parent_);
    // A file system in memory may have no size of its own.
    if (!kind.empty() && free_ == 0 && !has_size(parent_)) {
      free_ = std::numeric_limits<std::uint64_t>::max();
    }
    plan_ = plan_staging(sizes, free_, grid);
    if (!kind.empty()) memory_ = copies_in_memory(kind, grid);
    // If nothing fits, no directory is needed, and a full disk could not hold one.
    if (plan_.chosen.empty()) return;
    directory_.emplace(parent_, options.job);
    create_board(board_name(directory_->path()), shards.size());
  }

  /// Empty if nothing fits.
  [[nodiscard]] std::string path() const { return directory_ ? directory_->path() : std::string(); }
  [[nodiscard]] const StagePlan& plan() const noexcept { return plan_; }
  /// Empty if all shards fit.
  [[nodiscard]] std::string shortage(const std::string& host, std::size_t shards) const {
    if (plan_.chosen.size() == shards) return {};
    return fmt::format(
        "--stage-dir: {} of {} shards will lie in {} on {} ({} of them need {} more than the {} "
        "that are free); the others stay where they are",
        plan_.chosen.size(), shards, parent_, host, shards - plan_.chosen.size(),
        size_text(static_cast<double>(plan_.left_out_bytes - (free_ - plan_.bytes))),
        size_text(static_cast<double>(free_)));
  }

  /// Empty if the copies are on a disk.
  [[nodiscard]] const std::string& memory() const noexcept { return memory_; }

 private:
  /// Fails if the copies need more memory than the job may use; else says how much they need.
  [[nodiscard]] std::string copies_in_memory(const std::string& kind,
                                             const ProcessGrid& grid) const {
    const MemoryLimit limit = memory_for_files(grid.local_size);
    const auto text = [](std::uint64_t bytes) { return size_text(static_cast<double>(bytes)); };
    std::string facts = fmt::format(
        "--stage-dir: {} on {} is memory ({}): copies of {} take {} of the {} free ({})", parent_,
        grid.host, kind, count_text(plan_.chosen.size(), "shard"), text(plan_.bytes),
        text(limit.bytes), limit.source);
    if (plan_.bytes > limit.bytes - limit.bytes / memory_reserve_share) {
      fail(ExitStatus::usage,
           "{}, and a tenth of it is left to the run; name a disk of the node's own, ask for more "
           "memory, or drop --stage-dir",
           facts);
    }
    return facts;
  }

  std::string parent_;
  std::uint64_t free_;
  std::string memory_;
  std::optional<StageDirectory> directory_;
  StagePlan plan_;
};

/// One byte per shard in a file mapped by all ranks of the node. The copier sets it; the other
/// ranks read it without a system call.
class Staging::Board final {
 public:
  Board(const std::string& directory, std::size_t shards) : size_(shards) {
    const std::string path = board_name(directory);
    const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    void* memory = file ? ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0)
                        : MAP_FAILED;
    if (memory == MAP_FAILED) {
      fail(ExitStatus::cannot_write,
           "cannot map {} ({}); name storage of the node's own in --stage-dir", path,
           std::strerror(errno));
    }
    static_assert(std::atomic<unsigned char>::is_always_lock_free && sizeof(Flag) == 1);
    flags_ = static_cast<Flag*>(memory);
  }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  ~Board() { ::munmap(flags_, size_); }

  void set(std::size_t shard) noexcept { flags_[shard].store(1, std::memory_order_release); }
  [[nodiscard]] bool is_set(std::size_t shard) const noexcept {
    return flags_[shard].load(std::memory_order_acquire) != 0;
  }

 private:
  using Flag = std::atomic<unsigned char>;
  std::size_t size_;
  Flag* flags_ = nullptr;
};

class Staging::Copier final {
 public:
  Copier(const Staging& staging, Board& board, std::vector<int> cores)
      : staging_(staging), board_(board), cores_(std::move(cores)) {
    thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  }

  [[nodiscard]] std::vector<News> take_news() {
    const std::lock_guard lock(mutex_);
    return std::exchange(news_, {});
  }

 private:
  void say(News news) {
    const std::lock_guard lock(mutex_);
    news_.push_back(std::move(news));
  }

  void work(const std::stop_token& stop) {
    become_background_thread(cores_);
    const StagePlan& plan = staging_.directory_->plan();
    std::size_t done = 0;
    std::uint64_t bytes = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (const std::size_t shard : plan.chosen) {
      if (copy(shard, stop)) {
        ++done;
        bytes += staging_.shards_[shard].bytes;
      }
      if (stop.stop_requested()) return;
    }
    const std::size_t all_shards = staging_.shards_.size();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const auto size = static_cast<double>(bytes);
    // rate_text() has no fractions of 1 MB/s.
    const std::string speed =
        done == 0 ? ""
                  : fmt::format(" ({}, copied undamaged in {}, {:.1f} MB/s)", size_text(size),
                                time_text(seconds), size / 1e6 / seconds);
    say({.text = fmt::format("--stage-dir: {} of {}{} {} read from {} now", done,
                             count_text(all_shards, "shard"), speed, done == 1 ? "is" : "are",
                             staging_.path_)});
  }

  bool copy(std::size_t index, const std::stop_token& stop) {
    const ShardToCopy& shard = staging_.shards_[index];
    const std::string target = staging_.path(index);
    const std::string temporary = target + ".part";
    std::string fault;
    try {
      if (copy_shard(shard, temporary, stop)) {
        if (::rename(temporary.c_str(), target.c_str()) == 0) {
          board_.set(index);
          return true;
        }
        fault = std::strerror(errno);
      }
    } catch (const std::exception& error) {
      fault = error.what();
    }
    ::unlink(temporary.c_str());
    if (!fault.empty()) {
      say({.bad = true,
           .text =
               fmt::format("--stage-dir: {} stays in {}: {}", shard.name, shard.directory, fault)});
    }
    return false;
  }

  const Staging& staging_;
  Board& board_;
  std::vector<int> cores_;
  std::mutex mutex_;
  std::vector<News> news_;  ///< guarded by mutex_
  std::jthread thread_;     ///< declared last, so stopped and destroyed first
};

Staging::Staging(const StagingOptions& options, std::vector<ShardToCopy> shards,
                 const ProcessGrid& grid, Communicator& comm)
    : shards_(std::move(shards)) {
  const bool copies = grid.local_rank == 0;
  collectively(comm, [&] {
    if (copies) directory_ = std::make_unique<Directory>(options, shards_, grid);
  });
  // A node's first rank sends "NODE PATH".
  const auto places = all_gather_text(
      comm, copies ? fmt::format("{} {}", grid.node, directory_->path()) : std::string());
  const std::string mine = fmt::format("{} ", grid.node);
  for (const std::string& place : places) {
    if (place.starts_with(mine)) path_ = place.substr(mine.size());
  }
  // A node's first rank sends two lines.
  for (const std::string& lines : all_gather_text(
           comm, copies ? fmt::format("{}\n{}", directory_->shortage(grid.host, shards_.size()),
                                      directory_->memory())
                        : std::string("\n"))) {
    const std::size_t end = lines.find('\n');
    if (end > 0) shortages_.push_back(lines.substr(0, end));
    if (end + 1 < lines.size()) memory_.push_back(lines.substr(end + 1));
  }
  collectively(comm, [&] {
    if (!path_.empty()) board_ = std::make_unique<Board>(path_, shards_.size());
  });
  if (copies && board_) copier_ = std::make_unique<Copier>(*this, *board_, options.cores);
}

Staging::~Staging() = default;

bool Staging::ready(std::size_t shard) const noexcept {
  return board_ && board_->is_set(shard);
}

std::string Staging::path(std::size_t shard) const {
  return path_ + "/" + shards_[shard].name;
}

std::vector<Staging::News> Staging::take_news() {
  return copier_ ? copier_->take_news() : std::vector<News>{};
}

}  // namespace lockstep
