# amx.cmake -- tests whether products on AMX tiles, and on vectors of AVX512_BF16 and VNNI, can be compiled: x86-64,
# Linux, a compiler that supports them. Programs test at run time whether the processor has them. The source files that
# use them
# (matmul_amx.c, matmul_bf16.c, matmul_vnni.c) set their own targets, so no flag is set here.
include(CheckCSourceCompiles)
check_c_source_compiles("
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
__attribute__((target(\"avx512f,avx512bw,amx-tile,amx-bf16,amx-int8,avx512bf16\"))) static void multiply(void) { _tile_dpbf16ps(0, 1, 2); _tile_dpbsud(0, 1, 2); }
int main(void) { if (__builtin_cpu_supports(\"avx512bw\")) multiply(); return SYS_arch_prctl == 0; }" DRT_HAVE_AMX)
check_c_source_compiles("
#include <immintrin.h>
__attribute__((target(\"avx512f,avx512bw,avx512vl,avx512bf16\"))) static void multiply(float *x) {
    __m512 all = _mm512_loadu_ps(x);
    _mm512_storeu_ps(x, _mm512_dpbf16_ps(all, _mm512_cvtne2ps_pbh(all, all), _mm512_cvtne2ps_pbh(all, all))); }
int main(void) { float x[16] = {0}; if (__builtin_cpu_supports(\"avx512bf16\")) multiply(x); return x[0] > 0; }" DRT_HAVE_AVX512_BF16)
check_c_source_compiles("
#include <immintrin.h>
__attribute__((target(\"avx512f,avx512bw,avx512vl,avx512vnni\"))) static int wide(void) {
    __m512i x = _mm512_set1_epi32(1); return _mm512_reduce_add_epi32(_mm512_dpbusd_epi32(x, x, x)); }
__attribute__((target(\"avx2,fma,avxvnni\"))) static int half(void) {
    __m256i x = _mm256_set1_epi32(1); return _mm256_extract_epi32(_mm256_dpbusd_avx_epi32(x, x, x), 0); }
int main(void) { return __builtin_cpu_supports(\"avx512vnni\") ? wide() + half() : 0; }" DRT_HAVE_VNNI)

function(drt_amx_sources list)
  set(sources ${${list}})
  if(DRT_HAVE_AMX)
    list(FILTER sources EXCLUDE REGEX "_noamx\\.c$")
  else()
    list(FILTER sources EXCLUDE REGEX "_amx\\.c$")
  endif()
  if(DRT_HAVE_AVX512_BF16)
    list(FILTER sources EXCLUDE REGEX "_nobf16\\.c$")
  else()
    list(FILTER sources EXCLUDE REGEX "_bf16\\.c$")
  endif()
  if(DRT_HAVE_VNNI)
    list(FILTER sources EXCLUDE REGEX "_novnni\\.c$")
  else()
    list(FILTER sources EXCLUDE REGEX "_vnni\\.c$")
  endif()
  set(${list} ${sources} PARENT_SCOPE)
endfunction()
