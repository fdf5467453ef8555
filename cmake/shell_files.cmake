# SPDX-License-Identifier: Apache-2.0
# Writes what the program says of its own command line: the manual page, and completion for shells.
#   cmake -DPROGRAM=<reprise> -DOUTPUT=<folder> -P shell_files.cmake
function(write file)
  execute_process(COMMAND "${PROGRAM}" ${ARGN} OUTPUT_FILE "${OUTPUT}/${file}"
                  COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(MAKE_DIRECTORY "${OUTPUT}")
write(reprise.1 man)
write(reprise.bash completion bash)
write(_reprise completion zsh)
write(reprise.fish completion fish)
