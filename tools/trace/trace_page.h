/* trace_page.h -- the fixed parts of the trace page, in this order: head, (title), style, (title), body, (records),
 * tail. page/embed.cmake makes them from the files of page/. */
#pragma once

extern const char trace_page_head[], trace_page_style[], trace_page_body[], trace_page_tail[];
