// A library that is loaded before the program (LD_PRELOAD) and makes one rank fail, as selected by
// LOCKSTEP_TEST_FAULT=RANK:KIND:WHEN:HOW:
//   sleep  the WHENth read of a shard takes HOW seconds
//   send   the WHENth MPI_Send takes HOW seconds
//   skip   the WHENth MPI_Barrier is skipped
//   flip   after the WHENth MPI_Waitall, a bit of the last reduced buffer is flipped
//   spoil  a bit of the result of the WHENth MPI_Iallreduce is flipped
//   lose   the rank is killed in its WHENth MPI_Iallreduce; on the others, waits fail from then on
//   signal the rank gets the signal with number HOW in its WHENth MPI_Iallreduce
//   exit   the rank exits with status 0 in its WHENth MPI_Iallreduce
//   throw  its WHENth MPI_Iallreduce throws an exception
//   memory the rank runs out of memory in its WHENth MPI_Iallreduce
//   block  its WHENth MPI_Iallreduce never returns
//   hang   its WHENth execution of one of oneDNN's primitives never ends
//   links  symlinkat() fails with errno HOW from the WHENth on, as where links are not supported
//   hold   from the WHENth on, an open of the file LOCKSTEP_TEST_HELD_FILE makes FILE.held and
//          waits until that is removed
//   late   the WHENth connection by TCP that does not block, after MPI's start, begins HOW seconds
//          later
//   slow   oneDNN's primitives take HOW times as long, from the WHENth on

#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Fault {
  std::array<char, 16> kind{};
  bool is_own = false;  ///< this rank was selected
  long when = 0;
  double how = 0;
};

const char* own_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name)) return rank;
  }
  return "0";
}

Fault read_fault() {
  Fault fault;
  int rank = -1;
  const char* text = std::getenv("LOCKSTEP_TEST_FAULT");
  if (text == nullptr || std::sscanf(text, "%d:%15[a-z]:%ld:%lf", &rank, fault.kind.data(),
                                     &fault.when, &fault.how) < 3) {
    return {};
  }
  fault.is_own = rank == std::atoi(own_rank());
  return fault;
}

const Fault& fault() {
  static const Fault read = read_fault();
  return read;
}
bool job_has(const char* kind) {
  return std::strcmp(fault().kind.data(), kind) == 0;
}
bool is(const char* kind) {
  return fault().is_own && job_has(kind);
}
template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

bool is_shard(int descriptor) {
  std::array<char, 64> link{};
  std::array<char, 512> path{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(link.data(), path.data(), path.size() - 1);
  return size > 0 && std::strstr(path.data(), "/train-") != nullptr;
}

ssize_t read_at(const char* name, int descriptor, void* buffer, size_t size, off_t offset) {
  static long reads = 0;
  if (is("sleep") && is_shard(descriptor) && ++reads == fault().when) {
    std::this_thread::sleep_for(std::chrono::duration<double>(fault().how));
  }
  return next<ssize_t (*)(int, void*, size_t, off_t)>(name)(descriptor, buffer, size, offset);
}

void hold(const char* path) {
  static std::atomic<long> opened = 0;
  const char* file = std::getenv("LOCKSTEP_TEST_HELD_FILE");
  if (file == nullptr || !is("hold") || std::strcmp(path, file) != 0) return;
  if (++opened < fault().when) return;
  std::array<char, 512> held{};
  std::snprintf(held.data(), held.size(), "%s.held", file);
  close(next<int (*)(const char*, mode_t)>("creat")(held.data(), 0600));
  while (access(held.data(), F_OK) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int open_file(const char* name, const char* path, int flags, mode_t mode) {
  hold(path);
  return next<int (*)(const char*, int, ...)>(name)(path, flags, mode);
}

struct Reduction {
  void* buffer = nullptr;
  long started = 0;
  void* spoiled = nullptr;                 ///< buffer to corrupt; null: none in flight
  MPI_Request request = MPI_REQUEST_NULL;  ///< of its reduction
  long waited = 0;
  bool peer_is_lost = false;
};
Reduction& reduction() {
  static Reduction state;
  return state;
}

[[noreturn]] void sleep_forever() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

/// Allocates until operator new throws, within an address space of 4 GiB.
[[noreturn]] void run_out_of_memory() {
  const rlimit limit{.rlim_cur = rlim_t{4} << 30U, .rlim_max = rlim_t{4} << 30U};
  setrlimit(RLIMIT_AS, &limit);
  std::vector<std::vector<char>> blocks;
  for (;;) blocks.emplace_back().reserve(std::size_t{64} << 20U);  // reserved pages are not used
}

void fail_before_reduction() {
  if (is("signal")) kill(getpid(), static_cast<int>(fault().how));
  if (is("exit")) std::_Exit(0);
  if (is("throw")) throw std::runtime_error("a planted exception");
  if (is("memory")) run_out_of_memory();
  if (is("block")) sleep_forever();
}

bool completes_spoiled_reduction(int count, const MPI_Request requests[]) {
  const Reduction& state = reduction();
  return state.spoiled != nullptr &&
         std::find(requests, requests + count, state.request) != requests + count;
}
void spoil() {
  static_cast<unsigned char*>(std::exchange(reduction().spoiled, nullptr))[2] ^= 0x40U;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_file("open", path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_file("open64", path, flags, mode);
}

int connect(int descriptor, const sockaddr* to, socklen_t size) {
  static std::atomic<long> connections = 0;
  int has_mpi = 0;
  if (is("late") && to->sa_family == AF_INET && (fcntl(descriptor, F_GETFL) & O_NONBLOCK) != 0 &&
      MPI_Initialized(&has_mpi) == MPI_SUCCESS && has_mpi != 0 && ++connections == fault().when) {
    std::this_thread::sleep_for(std::chrono::duration<double>(fault().how));
  }
  return next<int (*)(int, const sockaddr*, socklen_t)>("connect")(descriptor, to, size);
}

int openat(int directory, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  std::array<char, 512> link{};
  std::array<char, 512> whole{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", directory);
  if (readlink(link.data(), whole.data(), whole.size() / 2) > 0) {
    std::strncat(whole.data(), "/", 1);
    std::strncat(whole.data(), path, whole.size() / 2 - 2);
    hold(whole.data());
  }
  return next<int (*)(int, const char*, int, ...)>("openat")(directory, path, flags, mode);
}

int symlinkat(const char* target, int directory, const char* path) {
  static long made = 0;
  if (is("links") && ++made >= fault().when) {
    errno = static_cast<int>(fault().how);
    return -1;
  }
  return next<int (*)(const char*, int, const char*)>("symlinkat")(target, directory, path);
}

ssize_t pread(int descriptor, void* buffer, size_t size, off_t offset) {
  return read_at("pread", descriptor, buffer, size, offset);
}
ssize_t pread64(int descriptor, void* buffer, size_t size, off_t offset) {
  return read_at("pread64", descriptor, buffer, size, offset);
}

int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request* request) {
  Reduction& state = reduction();
  state.buffer = to;
  if (++state.started == fault().when) fail_before_reduction();
  const int result = PMPI_Iallreduce(from, to, count, type, op, comm, request);
  if (state.started != fault().when) return result;
  if (is("lose")) kill(getpid(), SIGKILL);
  state.peer_is_lost = job_has("lose");
  if (is("spoil")) {
    state.spoiled = to;
    state.request = *request;
  }
  return result;
}

int MPI_Send(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  static long sent = 0;
  if (is("send") && ++sent == fault().when) {
    std::this_thread::sleep_for(std::chrono::duration<double>(fault().how));
  }
  return PMPI_Send(from, count, type, to, tag, comm);
}

int MPI_Barrier(MPI_Comm comm) {
  static long barriers = 0;
  return is("skip") && ++barriers == fault().when ? MPI_SUCCESS : PMPI_Barrier(comm);
}

int MPI_Testall(int count, MPI_Request requests[], int* done, MPI_Status statuses[]) {
  if (reduction().peer_is_lost) return MPI_ERR_OTHER;
  const bool spoils = completes_spoiled_reduction(count, requests);
  const int result = PMPI_Testall(count, requests, done, statuses);
  if (spoils && *done != 0) spoil();
  return result;
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  if (reduction().peer_is_lost) return MPI_ERR_OTHER;
  const bool spoils = completes_spoiled_reduction(count, requests);
  const int result = PMPI_Waitall(count, requests, statuses);
  if (spoils) spoil();
  Reduction& state = reduction();
  if (++state.waited == fault().when && is("flip")) {
    static_cast<unsigned char*>(state.buffer)[2] ^= 0x40U;
  }
  return result;
}

/// Overrides oneDNN's function.
int dnnl_primitive_execute(const void* primitive, void* stream, int count, const void* args) {
  using Execute = int (*)(const void*, void*, int, const void*);
  static const auto execute = next<Execute>("dnnl_primitive_execute");
  static long executed = 0;
  ++executed;
  if (is("hang") && executed == fault().when) sleep_forever();
  const Clock::time_point begin = Clock::now();
  const int result = execute(primitive, stream, count, args);
  if (is("slow") && executed >= fault().when) {
    const Clock::time_point end = Clock::now();
    while (Clock::now() < end + (fault().how - 1) * (end - begin)) {
    }
  }
  return result;
}

}  // extern "C"
