#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

/// `writer` writes and closes the file it is given, a temporary name beside `path`; it is then
/// fsynced, renamed to `path`, and the directory fsynced: at any moment `path` is the old file or
/// the whole new one. When the writer throws, or one of these calls fails (Error(cannot_write),
/// with errno's text), the temporary is removed and `path` is as it was. `before_rename`, which may
/// be empty, is called last before `path` changes; where it throws, `path` is as it was, too.
void write_atomically(const std::string& path,
                      const std::function<void(const std::string& temporary)>& writer,
                      const std::function<void()>& before_rename = {});
void write_text_atomically(const std::string& path, std::string_view text);

/// Makes `link` point to `target` (as written, so relative to the link's directory), replacing what
/// it was; `before_rename` as above.
void replace_symlink_atomically(const std::string& link, const std::string& target,
                                const std::function<void()>& before_rename = {});

/// Removes what a killed writer left in `directory`; for a directory that the caller alone writes
/// to. What cannot be removed stays.
void remove_stale_temporaries(const std::string& directory);

}  // namespace lockstep
