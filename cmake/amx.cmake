# amx.cmake -- tests whether products on AMX tiles can be compiled: x86-64, Linux, a compiler that supports them. Programs
# test at run time whether the processor has them. The one source file that uses them sets its own target, so no flag is
# set here.
include(CheckCSourceCompiles)
check_c_source_compiles("
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
__attribute__((target(\"avx512f,avx512bw,amx-tile,amx-bf16\"))) static void multiply(void) { _tile_dpbf16ps(0, 1, 2); }
int main(void) { if (__builtin_cpu_supports(\"avx512bw\")) multiply(); return SYS_arch_prctl == 0; }" DRT_HAVE_AMX)

function(drt_amx_sources list)
  set(sources ${${list}})
  if(DRT_HAVE_AMX)
    list(FILTER sources EXCLUDE REGEX "_noamx\\.c$")
  else()
    list(FILTER sources EXCLUDE REGEX "_amx\\.c$")
  endif()
  set(${list} ${sources} PARENT_SCOPE)
endfunction()
