#pragma once

#pragma GCC system_header
#include_next <nccl.h>

/// The installed NCCL as version 2.22: any use of what newer versions added fails to compile.
#undef NCCL_VERSION_CODE
#define NCCL_VERSION_CODE NCCL_VERSION(2, 22, 0)
#undef NCCL_WIN_COLL_SYMMETRIC
#pragma GCC poison ncclWindow_t NCCL_WIN_COLL_SYMMETRIC
#pragma GCC poison ncclCommWindowRegister ncclCommWindowDeregister
#pragma GCC poison ncclCommInitRankScalable
