#!/bin/sh
# reuse_object.sh OBJECTS COMPILER ARGUMENT...: stands before the compiler in a build of the same sources by the same flags:
# an object that the build OBJECTS has made is copied, and noted in $REUSED, unless the file $ANEW lists it; all else is compiled.
# The copy knows nothing of headers, so such a build begins anew each time.
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
