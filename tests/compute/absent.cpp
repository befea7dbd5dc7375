int lockstep_absent_value();
int lockstep_absent_value() {
  return 1;
}
