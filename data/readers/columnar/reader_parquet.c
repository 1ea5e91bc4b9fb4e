/* reader_parquet.c -- documents from a parquet file: one document per row, row group by row group, page by page. */
#include "base/memory.h"
#include "data/readers/columnar/parquet_internal.h"

struct parquet {
    struct columnar_file file;
    struct parquet_footer footer;
    struct parquet_column columns[COLUMNAR_COLUMNS];
    size_t group; /* number of the open row group */
    uint64_t row; /* of the open row group */
    bool begun;   /* whether the columns are open */
};

enum status parquet_open(struct reader *r) {
    struct parquet *p;
    TRY(memory_allocate_zero(&p, 1));
    r->parquet = p;
    TRY(columnar_file_open(&p->file, reader_file(r)->path));
    TRY(parquet_footer_read(&p->footer, &p->file, r->text_field, columnar_block_max(r)));
    for (int i = 0; i < COLUMNAR_COLUMNS; i++) {
        p->columns[i].file = &p->file;
        p->columns[i].name = i == COLUMNAR_TEXT ? r->text_field : "id";
        p->columns[i].block_max = columnar_block_max(r);
    }
    return STATUS_OK;
}

void parquet_close(struct reader *r) {
    struct parquet *p = r->parquet;
    if (!p) return;
    for (int i = 0; i < COLUMNAR_COLUMNS; i++)
        parquet_column_free(&p->columns[i]);
    parquet_footer_free(&p->footer);
    columnar_file_close(&p->file);
    memory_free(p);
    r->parquet = NULL;
}

enum status parquet_next(struct reader *r, struct document *d, int *more) {
    struct parquet *p = r->parquet;
    for (bool skipped = true; skipped;) {
        while (p->group < p->footer.n_groups && p->row == p->footer.groups[p->group].rows) {
            p->group++;
            p->row = 0;
            p->begun = false;
        }
        *more = p->group < p->footer.n_groups;
        if (!*more) return STATUS_OK;
        struct columnar_value values[COLUMNAR_COLUMNS] = {[COLUMNAR_KEY] = {.null = true}};
        for (int i = 0; i < COLUMNAR_COLUMNS; i++) {
            if (p->footer.leaves[i].number < 0) continue;
            if (!p->begun) parquet_column_begin(&p->columns[i], &p->footer, p->group, i);
            TRY(parquet_column_next(&p->columns[i], &values[i]));
        }
        p->begun = true;
        p->row++;
        TRY(columnar_row(r, d, &skipped, values, p->footer.kinds, (struct columnar_part){"row group", p->group}));
    }
    return STATUS_OK;
}

uint64_t parquet_done(const struct reader *r) {
    return r->parquet->columns[COLUMNAR_TEXT].at;
}
