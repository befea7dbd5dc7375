#!/bin/sh
# reuse_object.sh OBJECTS COMPILER ARGUMENT...: a compiler launcher for another build of the same sources with the same flags.
# Copies an object that the build OBJECTS has made, and records it in $REUSED, unless the file $ANEW lists it; else compiles.
# A copied object has no dependencies on headers, so such a build must start from scratch each time.
objects=$1
shift
output='' dependencies='' previous=''
for argument in "$@"; do
  case $previous in
    -o) output=$argument ;;
    -MF) dependencies=$argument ;;
  esac
  previous=$argument
done
if [ "${output%.o}" != "$output" ] && [ -n "$dependencies" ] && [ -f "$objects/$output" ] &&
  ! grep -qxF "$output" "${ANEW:-/dev/null}"; then
  : >"$dependencies"
  echo "$output" >>"${REUSED:-/dev/null}"
  exec cp "$objects/$output" "$output"
fi
exec "$@"
