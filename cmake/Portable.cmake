# A folder {bin,lib,scripts,specs,prompts,traces} that runs on another machine: `cmake --install` after a build of the
# preset gpu-portable (scripts/portable.sh does both and checks the result). Third-party libraries are
# static (Dependencies.cmake), so is the CUDA runtime; Highway has no archive and travels in lib/.
if(TRIPTYCH_CUDA)
  # Every program holds all kernels for all architectures: device code packed as small as it goes.
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size>)
endif()
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
install(PROGRAMS $<TARGET_FILE:hwy::hwy> DESTINATION lib RENAME $<TARGET_SONAME_FILE_NAME:hwy::hwy>)
install(PROGRAMS scripts/aa.py scripts/gpu_results.sh scripts/slim_results.py DESTINATION scripts)
install(DIRECTORY experiments/specs experiments/prompts experiments/traces DESTINATION .)
