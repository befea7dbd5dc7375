// Loaded before a program by LD_PRELOAD: counts the messages of each phase of its start, and writes
// them as JSON to $COUNT_MESSAGES_OUT when MPI ends. Phases are those of MPI_Pcontrol. Messages are
// those of Open MPI's monitoring component (--mca pml_monitoring_enable 1), which also sees what
// collectives send; the program's own sockets (the watchdog) and the files that it opens or makes
// below $COUNT_MESSAGES_BELOW are counted beside them.
#include <mpi.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

/// What one rank does in one phase.
struct Counts {
  std::string name;
  double seconds = 0;
  std::vector<std::uint64_t> messages;  ///< by receiver
  std::vector<std::uint64_t> bytes;     ///< by receiver
  std::uint64_t sockets = 0;            ///< connections made or accepted
  std::uint64_t socket_bytes = 0;       ///< sent and received
  std::uint64_t files = 0;              ///< opened or made
};

std::atomic<std::uint64_t> sockets{0};
std::atomic<std::uint64_t> socket_bytes{0};
std::atomic<std::uint64_t> files{0};
std::vector<Counts> phases;  // of the thread that calls MPI
Clock::time_point begin;

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

/// Whether the caller is in the program itself, not in a library.
bool is_program(const void* caller) {
  static const char* const program = [] {
    Dl_info info{};
    // The kernel passes addresses as integers. NOLINTNEXTLINE(performance-no-int-to-ptr)
    ::dladdr(reinterpret_cast<void*>(::getauxval(AT_PHDR)), &info);
    return info.dli_fname;
  }();
  Dl_info info{};
  return ::dladdr(caller, &info) != 0 && info.dli_fname != nullptr && program != nullptr &&
         std::strcmp(info.dli_fname, program) == 0;
}

void count_file(const char* path) {
  static const char* const root = std::getenv("COUNT_MESSAGES_BELOW");
  if (root != nullptr && std::strncmp(path, root, std::strlen(root)) == 0) ++files;
}

void end_phase() {
  if (phases.empty()) return;
  Counts& last = phases.back();
  last.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  last.sockets = sockets.exchange(0);
  last.socket_bytes = socket_bytes.exchange(0);
  last.files = files.exchange(0);
}

void begin_phase(const char* name) {
  end_phase();
  int ranks = 0;
  PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
  begin = Clock::now();
  Counts& counts = phases.emplace_back();
  counts.name = name;
  counts.messages.resize(static_cast<std::size_t>(ranks));
  counts.bytes.resize(static_cast<std::size_t>(ranks));
}

/// What is written of a phase.
enum Quantity : std::size_t {
  seconds,
  sent_messages,
  sent_bytes,
  received_messages,
  received_bytes,
  socket_connections,
  socket_bytes_moved,
  opened_files,
  quantities
};
constexpr const char* names[quantities] = {
    "seconds",        "sent_messages",      "sent_bytes",   "received_messages",
    "received_bytes", "socket_connections", "socket_bytes", "files"};

/// Totals of one rank in one phase, by Quantity.
struct Totals {
  double values[quantities] = {};
};

/// Adds what this rank sent and received; `sent`: by receiver.
void add_exchange(const std::vector<std::uint64_t>& sent, double& total_sent,
                  double& total_received) {
  std::uint64_t received = 0;
  PMPI_Reduce_scatter_block(sent.data(), &received, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  for (const std::uint64_t count : sent) total_sent += static_cast<double>(count);
  total_received += static_cast<double>(received);
}

Totals totals_of(const Counts& counts) {
  Totals totals;
  auto& values = totals.values;
  add_exchange(counts.messages, values[sent_messages], values[received_messages]);
  add_exchange(counts.bytes, values[sent_bytes], values[received_bytes]);
  values[seconds] = counts.seconds;
  values[socket_connections] = static_cast<double>(counts.sockets);
  values[socket_bytes_moved] = static_cast<double>(counts.socket_bytes);
  values[opened_files] = static_cast<double>(counts.files);
  return totals;
}

void write_counts() {
  end_phase();
  const std::vector<Counts> all = std::move(phases);
  phases.clear();  // what follows is not counted
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char* const path = std::getenv("COUNT_MESSAGES_OUT");
  std::FILE* const file = rank == 0 && path != nullptr ? std::fopen(path, "w") : nullptr;
  std::string text = "[";
  for (const Counts& counts : all) {
    Totals mine = totals_of(counts);
    Totals most;
    Totals sum;
    PMPI_Reduce(mine.values, most.values, quantities, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    PMPI_Reduce(mine.values, sum.values, quantities, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    text += (text.size() > 1 ? ",\n" : "") + ("{\"phase\": \"" + counts.name + "\"");
    const std::pair<const char*, const Totals*> rows[] = {
        {"rank_0", &mine}, {"most", &most}, {"sum", &sum}};
    for (const auto& [row, totals] : rows) {
      text += std::string(", \"") + row + "\": {";
      for (std::size_t i = 0; i < quantities; ++i) {
        char value[64];
        std::snprintf(value, sizeof value, "%s\"%s\": %.15g", i == 0 ? "" : ", ", names[i],
                      totals->values[i]);
        text += value;
      }
      text += "}";
    }
    text += "}";
  }
  if (file == nullptr) return;
  std::fprintf(file, "%s]\n", text.c_str());
  std::fclose(file);
}

}  // namespace

// The names below are those of the functions that they replace.
extern "C" {

/// Open MPI's monitoring component calls it for each message.
void mca_common_monitoring_record_pml(int receiver, std::size_t size, int /*tag*/) {
  if (phases.empty()) return;
  ++phases.back().messages[static_cast<std::size_t>(receiver)];
  phases.back().bytes[static_cast<std::size_t>(receiver)] += size;
}

int MPI_Pcontrol(const int level, ...) {
  std::va_list arguments;
  va_start(arguments, level);
  if (level == 1) begin_phase(va_arg(arguments, const char*));
  va_end(arguments);
  return MPI_SUCCESS;
}

int MPI_Finalize() {
  write_counts();
  return PMPI_Finalize();
}

ssize_t send(int socket, const void* data, std::size_t size, int flags) {
  static const auto original = next<ssize_t (*)(int, const void*, std::size_t, int)>("send");
  const ssize_t done = original(socket, data, size, flags);
  if (done > 0 && is_program(__builtin_return_address(0)))
    socket_bytes += static_cast<std::uint64_t>(done);
  return done;
}

ssize_t recv(int socket, void* data, std::size_t size, int flags) {
  static const auto original = next<ssize_t (*)(int, void*, std::size_t, int)>("recv");
  const ssize_t done = original(socket, data, size, flags);
  if (done > 0 && is_program(__builtin_return_address(0)))
    socket_bytes += static_cast<std::uint64_t>(done);
  return done;
}

int connect(int socket, const sockaddr* address, socklen_t size) {
  static const auto original = next<int (*)(int, const sockaddr*, socklen_t)>("connect");
  if (is_program(__builtin_return_address(0))) ++sockets;
  return original(socket, address, size);
}

int accept4(int socket, sockaddr* address, socklen_t* size, int flags) {
  static const auto original = next<int (*)(int, sockaddr*, socklen_t*, int)>("accept4");
  const int done = original(socket, address, size, flags);
  if (done >= 0 && is_program(__builtin_return_address(0))) ++sockets;
  return done;
}

int open(const char* path, int flags, ...) {
  static const auto original = next<int (*)(const char*, int, mode_t)>("open");
  // O_TMPFILE contains the bit of O_DIRECTORY.
  const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  std::va_list arguments;
  va_start(arguments, flags);
  const auto mode = makes ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  count_file(path);
  return original(path, flags, mode);
}
/// On 64-bit systems, open64 is open.
int open64(const char* path, int flags, ...) __attribute__((alias("open")));

std::FILE* fopen(const char* path, const char* mode) {
  static const auto original = next<std::FILE* (*)(const char*, const char*)>("fopen");
  count_file(path);
  return original(path, mode);
}

int mkdir(const char* path, mode_t mode) {
  static const auto original = next<int (*)(const char*, mode_t)>("mkdir");
  count_file(path);
  return original(path, mode);
}

}  // extern "C"
