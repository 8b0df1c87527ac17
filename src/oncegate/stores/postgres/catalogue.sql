-- One line for each thing that migrations make, as the server's catalogue has it. Left out: partitions of months, which
-- come and go; sequences of identity columns, whose names the server chooses; expressions of indexes, which versions of
-- the server write differently.
WITH ledger AS (
    SELECT coalesce(to_regclass('oncegate_meta'), to_regclass('oncegate_entry')) AS one
),
relation AS (
    SELECT class.oid, class.relname::text AS name, class.relkind AS kind
    FROM pg_class AS class, ledger
    WHERE class.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = one)
      AND class.relname ~ '^oncegate_' AND class.relkind IN ('r', 'p', 'v', 'S')
      AND (NOT class.relispartition OR class.relname ~ '_other$')
      AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = class.oid AND deptype = 'i' AND class.relkind = 'S')
)
SELECT CASE kind WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' ELSE 'table' END, name, ''
FROM relation
UNION ALL
SELECT 'column', name || '.' || attname,
       format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ' not null' ELSE '' END
           || CASE WHEN attidentity <> '' THEN ' identity' ELSE coalesce(' default ' || pg_get_expr(adbin, adrelid), '') END
FROM relation JOIN pg_attribute ON attrelid = relation.oid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE kind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT 'index', class.relname, format(
           '%son %s (%s)%s%s', CASE WHEN indisprimary THEN 'primary key ' WHEN indisunique THEN 'unique ' ELSE '' END, name,
           (SELECT string_agg(coalesce(attname, 'expression'), ', ' ORDER BY place)
            FROM unnest(indkey::int[]) WITH ORDINALITY AS part (number, place)
            LEFT JOIN pg_attribute ON attrelid = indrelid AND attnum = number AND number > 0),
           CASE WHEN indpred IS NULL THEN '' ELSE ' partial' END,
           CASE WHEN indisvalid THEN '' ELSE ' invalid' END)
FROM relation JOIN pg_index ON indrelid = relation.oid JOIN pg_class AS class ON class.oid = indexrelid
UNION ALL
SELECT 'check', conname, 'on ' || name
FROM relation JOIN pg_constraint ON conrelid = relation.oid
WHERE contype = 'c'
UNION ALL
SELECT 'function', proname, pg_get_function_identity_arguments(pg_proc.oid)
FROM pg_proc, ledger
WHERE proname ~ '^oncegate_' AND pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = one)
ORDER BY 1, 2, 3
