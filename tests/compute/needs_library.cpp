int lockstep_absent_value();
int lockstep_needs_library();
int lockstep_needs_library() {
  return lockstep_absent_value();
}
