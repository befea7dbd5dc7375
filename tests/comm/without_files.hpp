#pragma once

#include <sys/resource.h>

namespace lockstep::test {

/// While it exists, this process can open no file, nor shared memory, if `refuses`.
class WithoutFiles final {
 public:
  explicit WithoutFiles(bool refuses) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    if (refuses) setrlimit(RLIMIT_NOFILE, &none);
  }
  WithoutFiles(const WithoutFiles&) = delete;
  WithoutFiles& operator=(const WithoutFiles&) = delete;
  ~WithoutFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace lockstep::test
