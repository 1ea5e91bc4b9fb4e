// faiss_error.cpp -- the last exception of FAISS's C interface, in place of the archive's own member.
//
// Debian compiles libfaiss_c.a for programs: its error_impl.o addresses this thread's variable in a manner that the
// linker refuses in a shared library (R_X86_64_TPOFF32). All its other members, and libfaiss.a, can be linked into one.
// If these two symbols are defined first, the linker does not use that member. With a shared libfaiss_c this file is
// not compiled.
#include <exception>

extern thread_local std::exception_ptr faiss_last_exception;
thread_local std::exception_ptr faiss_last_exception;

extern "C" const char *faiss_get_last_error(void);
const char *faiss_get_last_error(void) {
    if (!faiss_last_exception) return nullptr;
    try {
        std::rethrow_exception(faiss_last_exception);
    } catch (const std::exception &e) {
        return e.what(); // of the object that the variable keeps
    } catch (...) {
        return "an exception without a message";
    }
}
