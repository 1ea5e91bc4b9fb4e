// faiss_compat.cpp -- lets Debian 13's libfaiss.a link on Debian 12 (glibc 2.36, libstdc++ 12).
//
// Weak, so that a system that has the real symbols uses its own. The C23 readers differ from the old ones only in
// accepting 0b... in base 0 and 2, which FAISS's index strings never contain. <iostream> is here for its initialiser:
// without one C++ object that includes it, FAISS's error output crashes.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>

extern "C" {
// Not where glibc has them (2.38, Debian 13): there strtol itself is called __isoc23_strtol, and would call itself.
#if !__GLIBC_PREREQ(2, 38)
__attribute__((weak)) long drt_compat_strtol(const char *text, char **end, int base) __asm__("__isoc23_strtol");
long drt_compat_strtol(const char *text, char **end, int base) { return std::strtol(text, end, base); }

__attribute__((weak)) int drt_compat_sscanf(const char *text, const char *format, ...) __asm__("__isoc23_sscanf");
int drt_compat_sscanf(const char *text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = std::vsscanf(text, format, args);
    va_end(args);
    return n;
}
#endif

// Objects of GCC 13 and later name it, so that a libstdc++ that sets std::cout up itself is loaded; nothing calls it.
#if _GLIBCXX_RELEASE < 13
__attribute__((weak)) void drt_compat_ios_init() __asm__("_ZSt21ios_base_library_initv");
void drt_compat_ios_init() {}
#endif

__attribute__((weak)) void __cxa_call_terminate(void *) noexcept;
void __cxa_call_terminate(void *) noexcept { std::terminate(); }
}
